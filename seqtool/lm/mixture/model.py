"""Several language models as one: the interpolation of their probabilities.

    p(w | text) = sum over the parts k of weight_k p_k(w | text)

The parts may be of any kind, n-gram and neural alike. Their vocabularies must hold the same
symbols, but may number them differently, as two ways of counting the same text do; the ids of the
mixture are those of its first part.

On disk, a mixture is a model directory without weights of its own, which refers to its parts:
`model.json` has the path of each, relative to the directory, its weight and the SHA-256 of its
header (of the whole file, if it is one). So a part that was moved, or trained again, is found out
when the mixture is opened. A cache is no part on disk: its settings stand among the parts, and the
part that it is over is found again.

Shapes: P parts, N tokens, H hypotheses and V symbols. Log-probabilities are nats.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import checkpoint, storage
from seqtool.core.arrays import Bools, Doubles, Ids, Reals
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, ModelError, OutputError, counted
from seqtool.core.terminal import short_path
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import UNK_ID
from seqtool.lm.held_out import MAX_PARTS
from seqtool.lm.mixture.cache import CacheModel, StatefulModel
from seqtool.lm.mixture.config import WEIGHT, CacheConfig
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import Adaptation, State, Summary, TokenScores, summarise_by_steps
from seqtool.text.tokenizers import Tokenizer

SUM_SLACK = 1e-4  # weights may be rounded: 0.3333,0.3333,0.3333


@dataclass(frozen=True)
class MixedState:
    """The states of the parts, [P]."""

    parts: tuple[State, ...]

    def __getitem__(self, rows: npt.NDArray[np.intp]) -> MixedState:
        """Return the hypotheses `rows`."""
        return MixedState(tuple(part[rows] for part in self.parts))


class MixedModel(LanguageModel):
    """Language models interpolated with fixed weights; ids are those of the first one.

    Args:
        parts: the models, two or more.
        weights: [P], at least 0, of sum 1; all equal when not given.
        names: what messages and tables call the parts; their numbers when not given.

    Raises:
        ConfigError: weights that are no distribution over the parts.
        ModelError: the parts do not predict the same symbols.
    """

    kind = "mixture"

    def __init__(
        self,
        parts: Sequence[LanguageModel],
        weights: Sequence[float] | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        if len(parts) < 2:
            raise ConfigError("a mixture needs two models or more", hint="name another model")
        self.parts = tuple(parts)
        self.names = tuple(names or (f"model {k}" for k in range(1, len(parts) + 1)))
        self.tokenizer = first = parts[0].tokenizer
        self._numbers = [
            numbering(first, part.tokenizer, self.names[0], other)
            for part, other in zip(self.parts, self.names, strict=True)
        ]
        equal = [1 / len(parts)] * len(parts)
        self.weights = check_weights(equal if weights is None else weights, len(parts))

    @property
    def carries_state(self) -> bool:
        """Return whether a part carries its state from sentence to sentence."""
        return any(part.carries_state for part in self.parts)

    @property
    def adaptations(self) -> tuple[Adaptation, ...]:
        """Return how its parts adapt to the text that is measured."""
        return tuple(how for part in self.parts for how in part.adaptations)

    def in_part(self, number: int, ids: Ids) -> Ids:
        """Return the ids that the part at a place, from 0, has for symbols of the mixture."""
        numbers = self._numbers[number]
        return ids if numbers is None else numbers[ids]

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Score blocks; the columns are the surprisals of the parts in bits, and then their own.

        A column ends with the number of its part: surprisal_1, surprisal_2, order_2. A block that
        one part reads ahead is kept until all have read it. The class of a mixture is the mixture
        of the classes; its entropy is not that of entropies, and is found step by step.
        """
        if summary is not None and summary.entropy:
            yield from summarise_by_steps(self, blocks, summary, reset_state=reset_state)
            return
        class_V = None if summary is None else summary.class_V
        streams = [
            part.score_ids(
                map(partial(self.in_part, number), source),
                reset_state=reset_state,
                summary=None if class_V is None else Summary(self._class_in_part(number, class_V)),
            )
            for (number, part), source in zip(
                enumerate(self.parts), itertools.tee(blocks, len(self.parts)), strict=True
            )
        ]
        for scores in zip(*streams, strict=True):
            log_probs_PN = np.stack([part.log_probs for part in scores])
            classes = [part.class_log_probs for part in scores if part.class_log_probs is not None]
            of_class = self._mix(classes) if classes else None
            mixed = self._mix(log_probs_PN)
            yield TokenScores(mixed, _columns(scores), of_class, parts=log_probs_PN)

    def _class_in_part(self, number: int, class_V: Bools) -> Bools:
        """Return a class of symbols in the numbering of a part."""
        renumbered_V = np.zeros_like(class_V)
        renumbered_V[self.in_part(number, np.flatnonzero(class_V).astype(np.int32))] = True
        return renumbered_V

    def _mix(self, log_probs: Sequence[Reals] | Doubles) -> Doubles:
        """Return the log of the weighted sum of probabilities, given per part."""
        with np.errstate(divide="ignore"):  # a weight of 0
            log_weights = np.log(self.weights)
        mixed: Doubles = np.asarray(log_probs[0], dtype=np.float64) + log_weights[0]
        for log_weight, part in zip(log_weights[1:], log_probs[1:], strict=True):
            np.logaddexp(mixed, np.asarray(part, dtype=np.float64) + log_weight, out=mixed)
        return mixed

    def start(self, num: int) -> MixedState:
        """Return `num` hypotheses at the beginning of a sentence."""
        return MixedState(tuple(part.start(num) for part in self.parts))

    def advance(self, state: MixedState, tokens: Ids) -> MixedState:
        """Read one token per hypothesis, [H]."""
        pairs = enumerate(zip(self.parts, state.parts, strict=True))
        return MixedState(
            tuple(part.advance(own, self.in_part(number, tokens)) for number, (part, own) in pairs)
        )

    def next_log_probs(self, state: MixedState) -> Doubles:
        """Return [H, V] nats for the next token of each hypothesis."""
        log_probs = []
        for part, own, numbers in zip(self.parts, state.parts, self._numbers, strict=True):
            log_probs_HV = part.next_log_probs(own)
            log_probs.append(log_probs_HV if numbers is None else log_probs_HV[:, numbers])
        return self._mix(log_probs)


def check_weights(weights: Sequence[float], num: int) -> tuple[float, ...]:
    """Return the weights of `num` models, divided by their sum, which must be 1 but for rounding.

    Raises:
        ConfigError: too few or too many, one below 0, or another sum.
    """
    if len(weights) != num:
        raise ConfigError(
            f"{counted(len(weights), 'weight')} for {counted(num, 'model')}",
            hint="give one weight per model, in the order of the models",
        )
    for weight in weights:
        if not (math.isfinite(weight) and weight >= 0):
            raise ConfigError(f"a weight is {weight:g}", hint="give weights from 0 to 1")
    total = math.fsum(weights)
    if abs(total - 1) > SUM_SLACK:
        shares = ",".join(f"{weight / total if total else 1 / num:.6f}" for weight in weights)
        what = f"the weights sum to {total:.6g} instead of 1"
        raise ConfigError(what, hint=f"in these proportions give {shares}")
    return tuple(weight / total for weight in weights)


def check_reading(first: Tokenizer, other: Tokenizer, name: str, other_name: str) -> None:
    """Refuse models of different units, case or direction.

    Raises:
        ModelError: with the names of both.
    """
    if first.unit != other.unit:
        raise ModelError(
            f"{other_name} reads {other.unit} units, but {name} reads {first.unit} units",
            hint="mix models that were trained on one prepared corpus",
        )
    if first.lowercase != other.lowercase:
        lower, mixed = (name, other_name) if first.lowercase else (other_name, name)
        raise ModelError(
            f"{lower} lower-cases the text, but {mixed} does not",
            hint="train both with --lowercase, or both without",
        )
    if first.reverse != other.reverse:
        backward, forward = (name, other_name) if first.reverse else (other_name, name)
        raise ModelError(
            f"{backward} reads lines from their ends, but {forward} does not",
            hint="add up what each gives whole sentences: seqtool eval-ppl --per-sentence",
        )


def numbering(first: Tokenizer, other: Tokenizer, name: str, other_name: str) -> Ids | None:
    """Return [V], the other's id of each symbol of the first; None where they are the same.

    The names are for messages.

    Raises:
        ModelError: the two read a text as different tokens.
    """
    check_reading(first, other, name, other_name)
    ours, theirs = first.vocabulary, other.vocabulary
    if ours == theirs:
        return None
    numbers = theirs.encode(ours.symbols)
    hint = "train both on one corpus made by `seqtool prepare`, which fixes the vocabulary"
    lacks = int((numbers == UNK_ID).sum()) - 1  # <unk> itself is there
    more = len(theirs) - (len(ours) - lacks)
    if lacks or more:
        noun = "word" if first.unit == "word" else "symbol"
        what = (
            f"the vocabularies differ: {name} has {counted(lacks, noun)} that {other_name} lacks, "
            f"and {other_name} has {more:,} that {name} lacks"
        )
        raise ModelError(what, hint=hint)
    if first.unit not in ("word", "char"):  # the order of subwords decides how a text is cut
        raise ModelError(f"{name} and {other_name} cut words into pieces differently", hint=hint)
    return numbers


def _columns(scores: Sequence[TokenScores]) -> dict[str, npt.NDArray[Any]]:
    """Return the surprisals of the parts (bits), then their own columns."""
    columns: dict[str, npt.NDArray[Any]] = {}
    for number, part in enumerate(scores, start=1):
        columns[f"surprisal_{number}"] = 0.0 - part.log_probs / LN_2  # not -0.0 for a sure token
    for number, part in enumerate(scores, start=1):
        columns.update({f"{name}_{number}": column for name, column in part.columns.items()})
    return columns


def source_of(models: Sequence[LanguageModel], names: Sequence[str]) -> tuple[LanguageModel, str]:
    """Return the model that a cache beside these is over, and its name.

    It is the first with states, in the parts of a mixture too, else the first.

    Raises:
        ConfigError: there is a cache already.
    """
    parts = list(_parts(models, names))
    if any(isinstance(model, CacheModel) for model, _ in parts):
        raise ConfigError("the mixture has a cache already", hint="drop --cache")
    return next((part for part in parts if isinstance(part[0], StatefulModel)), parts[0])


def _parts(
    models: Sequence[LanguageModel], names: Sequence[str]
) -> Iterator[tuple[LanguageModel, str]]:
    for model, name in zip(models, names, strict=True):
        if isinstance(model, MixedModel):
            yield from _parts(model.parts, model.names)
        else:
            yield model, name


_MIX_AGAIN = "mix the models again with: seqtool eval-ppl --save-mixture"


def save_model(
    path: str | Path,
    model: MixedModel,
    parts: Sequence[str | Path],
    *,
    scores: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    command: str = "",
) -> None:
    """Write a mixture as a model directory that refers to its parts; what is there is replaced.

    `parts` are the places of all parts but a cache: model directories or ARPA files. Scores, data
    and command are as of `checkpoint.Header`.

    Raises:
        OutputError: the directory is, or holds, one of the parts.
    """
    check_apart(path, parts)
    output = Path(path).resolve()
    headers = [checkpoint.read_header(part) for part in parts if not checkpoint.is_foreign(part)]
    paths = map(Path, parts)
    entries: dict[str, dict[str, Any]] = {}
    for number, (part, weight) in enumerate(zip(model.parts, model.weights, strict=True), start=1):
        if isinstance(part, CacheModel):
            entry = {"kind": part.kind, "weight": weight, "settings": to_dict(part.config)}
        else:
            place = next(paths)
            entry = {
                "path": Path(os.path.relpath(place.resolve(), output)).as_posix(),
                "kind": part.kind,
                "weight": weight,
                "sha256": _sum_of_part(place),
            }
        entries[str(number)] = entry
    header = checkpoint.Header(
        kind=MixedModel.kind,
        config={"parts": entries},
        tokenizer=model.tokenizer.describe(),
        scores=dict(scores or {}),
        data=dict(data or {}),
        command=command,
        num_parameters=sum(header.num_parameters for header in headers),
        versions={name: value for header in headers for name, value in header.versions.items()},
    )
    checkpoint.save(path, header, _card(header), lambda directory: None)


def check_apart(path: str | Path, parts: Sequence[str | Path]) -> None:
    """Refuse to write a mixture over one of its parts.

    Raises:
        OutputError: the directory is, or holds, one of the parts.
    """
    output = Path(path).resolve()
    for part in parts:
        if Path(part).resolve().is_relative_to(output):
            raise OutputError(
                "a part of the mixture is there, and a mixture only refers to its parts",
                hint="choose another directory",
                path=path,
            )


def load_model(directory: Path, header: checkpoint.Header, *, device: str = "cpu") -> MixedModel:
    """Open a mixture and all of its parts.

    Raises:
        ModelError: a part is missing or damaged, or is not what was mixed; or there are too many.
    """
    if len([*itertools.islice(_below(directory, header), MAX_PARTS + 1)]) > MAX_PARTS:
        what = f"a mixture of more than {MAX_PARTS} models, those inside its parts counted"
        raise ModelError(what, hint="mix fewer models", path=directory)
    models: list[LanguageModel] = []
    names: list[str] = []
    try:
        entries = list(header.config["parts"].values())
        weights = [float(entry["weight"]) for entry in entries]
        caches = [
            from_dict(CacheConfig, entry["settings"])
            for entry in entries
            if entry["kind"] == "cache"
        ]
        references = [
            (short_path((directory / entry["path"]).resolve()), entry["sha256"])
            for entry in entries
            if entry["kind"] != "cache"
        ]
    except (KeyError, TypeError, ArithmeticError, ValueError, AttributeError, ConfigError) as error:
        raise _damaged(directory) from error
    for path, sum_then in references:
        is_there = storage.present(path).exists()
        if not is_there or _sum_of_part(path) != sum_then:
            what = "has changed since it was mixed" if is_there else "is not there"
            raise ModelError(
                f"this part of the mixture {short_path(directory)} {what}",
                hint=_MIX_AGAIN if is_there else f"put it back, or {_MIX_AGAIN}",
                path=path,
            )
        models.append(checkpoint.load(path, device=device))
        names.append(str(path))
    try:
        for config in caches:
            source, name = source_of(models, names)
            models.append(CacheModel(source, config, name=name))
            names.append(f"cache of {name}")
        return MixedModel(models, weights, names=names)
    except (ConfigError, IndexError) as error:
        raise _damaged(directory) from error


def _below(directory: Path, header: checkpoint.Header) -> Iterator[Path]:
    """Yield the parts of a mixture that are there, those of its parts too."""
    parts = header.config.get("parts")
    for part in parts.values() if isinstance(parts, dict) else ():
        path = directory / str(part.get("path")) if isinstance(part, dict) else directory
        if path != directory and (path / checkpoint.HEADER).is_file():
            yield path
            inner = checkpoint.read_header(path)
            yield from _below(path, inner) if inner.kind == MixedModel.kind else ()


def _damaged(directory: Path) -> ModelError:
    return ModelError("damaged model header", hint=_MIX_AGAIN, path=directory / checkpoint.HEADER)


def _sum_of_part(path: Path) -> str:
    """Return the SHA-256 of a model's header, which holds the sums of its files, or of a file."""
    return storage.sum_of(path if path.is_file() else checkpoint.find(path) / checkpoint.HEADER)


def _card(header: checkpoint.Header) -> str:
    """Return the README.md of a mixture: its parts, their weights, its scores and its command."""
    rows = []
    for part in header.config["parts"].values():
        settings = ", ".join(
            f"{name} {value:g}" for name, value in part.get("settings", {}).items()
        )
        rows.append((part.get("path", settings), part["kind"], f"{part['weight']:.4f}"))
    return checkpoint.compose(
        header,
        "Mixture of language models",
        f"The probabilities of {len(rows)} models, interpolated. They stay where they are: "
        "keep them there.",
        checkpoint.table(("part", "kind", "weight"), rows),
        checkpoint.scores_table(header),
        maker="the Python library",
        use=(
            "seqtool eval-ppl TEXT -m THIS_DIRECTORY",
            'seqtool generate --prompt "..." -m THIS_DIRECTORY',
        ),
    )


def open_language_model(
    path: Path, *, device: str = "cpu", threads: int | None = None
) -> LanguageModel:
    """Open a model directory or an ARPA file, without torch where it needs none.

    The device, "auto" for the best one, and threads, None for all cores, are of a network.

    Raises:
        ModelError: there is no model, it is damaged, or it is no language model.
        ConfigError: there is no such device, or an impossible number of threads.
    """
    # a model made with torch is neural, or a mixture with a neural part
    if not checkpoint.is_foreign(path):
        checkpoint.find(path, checkpoint.LM_KINDS)  # whose hints name language models only
        if "torch" in checkpoint.read_header(path).versions:
            from seqtool.training import hardware

            device = hardware.choose_device(device)
            hardware.set_threads(threads)
            hardware.prepare_device(device)
    model = checkpoint.load(path, device=device)
    if not isinstance(model, LanguageModel):
        raise ModelError(
            "is no language model", hint="choose one that train-lm made, with -m", path=path
        )
    return model


def open_parts(
    paths: Sequence[Path], *, device: str = "cpu", threads: int | None = None
) -> list[LanguageModel]:
    """Open models as `open_language_model` does."""
    return [open_language_model(path, device=device, threads=threads) for path in paths]


def mix(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    weights: Sequence[float] | None = None,
    *,
    cache: Mapping[str, Any] | None = None,
    cache_weight: float | None = None,
) -> LanguageModel:
    """Return one model as it is, several as their mixture, and either with a cache if it is wanted.

    Weights are those of the models among themselves; equal ones when there are none. The cache has
    these settings of `CacheConfig`, and its own weight in the mixture; None is no cache.

    Raises:
        ConfigError: theta is given for models without states, or there is a cache already.
        ModelError: the models do not fit together.
    """
    names = [str(path) for path in paths]
    if cache is None:
        return models[0] if len(models) == 1 else MixedModel(models, weights, names=names)
    source, name = source_of(models, names)
    with_cache = CacheModel(source, CacheConfig(**cache), name=name)
    if cache.get("theta") and not with_cache.has_states:
        raise ConfigError(
            "--cache-theta compares the states of a network, but there is none",
            hint="drop it: the cache then counts words",
        )
    share = WEIGHT if cache_weight is None else cache_weight
    rest = weights or [1 / len(models)] * len(models)
    return MixedModel(
        [*models, with_cache],
        [*((1 - share) * weight for weight in rest), share],
        names=[*names, f"cache of {name}"],
    )
