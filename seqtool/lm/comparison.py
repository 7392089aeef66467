"""Language models side by side on one text: how well, how large, how fast, and if by chance.

Models that read the text as the same tokens are compared by bits per token; of others the tokens
differ, and with them the perplexities, so that bits per byte of the text are what compares. Whether
one model is better than another is tested by a paired bootstrap over sentences (`core.bootstrap`).
Shapes: S sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Doubles
from seqtool.core.bootstrap import NUM_SAMPLES, SEED, Significance, bootstrap
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.one_line import OneLine
from seqtool.core.units import LN_2
from seqtool.lm.evaluation import LMEvaluation, ScoredBlock, evaluate_lm
from seqtool.lm.held_out import parts_of
from seqtool.lm.protocol import LanguageModel, sentence_begins

Unit = Literal["token", "byte"]  # what the bits of a difference are per

COLUMNS = (
    *("model", "kind", "unit", "vocabulary_size", "perplexity", "bits_per_byte", "oov"),
    *("parameters", "bytes", "tokens_per_second", "train_seconds"),
    *("difference", "low", "high", "p_value"),
)


@dataclass(frozen=True)
class Costs:
    """What a model took; None where it does not say.

    Attributes:
        parameters: trained numbers; those of all parts of a mixture.
        bytes: of its files; of a mixture, of those of its parts.
        train_seconds: wall time of its training, as its header records it; of a mixture, of all.
    """

    parameters: int | None
    bytes: int | None
    train_seconds: float | None


@dataclass(frozen=True)
class ComparedModel(OneLine):
    """One of the models.

    Attributes:
        name: what it was called.
        kind: of the model.
        result: how well it predicts the text; `seconds` without its first start.
        costs: what it took.
        lead: its bits less those of the first model, per token or byte: below 0 it is better. None
            for the first, and where one of the two finds a token impossible.
    """

    shown = ("name", "kind", "result.perplexity", "result.bits_per_byte")

    name: str
    kind: str
    result: LMEvaluation
    costs: Costs
    lead: Significance | None

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the model scored per second, reading the text included."""
        return self.result.tokens / self.result.seconds

    def row(self) -> tuple[Any, ...]:
        """Return the cells of `COLUMNS`."""
        result, costs, lead = self.result, self.costs, self.lead
        test = ("difference", "low", "high", "p_value")
        return (
            *(self.name, self.kind, result.unit, result.vocabulary_size, result.perplexity),
            *(result.bits_per_byte, result.oov, costs.parameters, costs.bytes),
            *(self.tokens_per_second, costs.train_seconds),
            *(None if lead is None else getattr(lead, name) for name in test),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            **{"model": self.name, "kind": self.kind},
            **self.result.to_json(),
            **{"parameters": self.costs.parameters, "bytes": self.costs.bytes},
            "tokens_per_second": self.tokens_per_second,
            "train_seconds": self.costs.train_seconds,
            "against_first": self.lead,
        }


@dataclass(frozen=True)
class Comparison(OneLine):
    """Models on one text.

    Attributes:
        models: in the order of the call.
        per: what the bits of their differences are per: a token, or a byte where the vocabularies
            or the tokens of the text differ.
        samples: texts drawn for each test.
        seed: of the draws.
    """

    shown = ("per", "perplexities")

    models: tuple[ComparedModel, ...]
    per: Unit
    samples: int
    seed: int

    @property
    def perplexities(self) -> dict[str, float]:
        """The perplexity of each model, by its name."""
        return {model.name: model.result.perplexity for model in self.models}

    def _html_rows(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(COLUMNS, model.row(), strict=True)) for model in self.models)

    @property
    def remarks(self) -> Iterator[str]:
        """What to say of figures that do not compare."""
        models = self.models
        if self.per == "byte":
            yield "the models read the text as other tokens, so compare them by bits per byte"
        if len({model.result.oov for model in models}) > 1:
            shown = ", ".join(f"{model.name} {model.result.oov:,}" for model in models)
            yield f"tokens read as <unk>, which is easier to predict than the words: {shown}"
        for model in models:
            if model.result.adaptations:
                yield f"{model.name} learns from the text as it reads it; fixed models do not"
            if model.result.impossible:
                yield (
                    f"{model.result.impossible:,} tokens have no probability at all under "
                    f"{model.name}: its perplexity is infinite, and there is no test"
                )
        if not any(m.result.impossible for m in models) and None in (m.lead for m in models[1:]):
            yield "there is no test: the text has one sentence, or all of them are alike"


def compare_lms(
    models: Sequence[str | Path | tuple[str, LanguageModel]],
    inputs: str | Path | Sequence[str | Path],
    *,
    split: str | None = None,
    field: str | None = None,
    reset_state: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    samples: int = NUM_SAMPLES,
    seed: int = SEED,
    on_progress: Callable[[str], Callable[[int, int | None], None]] | None = None,
) -> Comparison:
    """Measure language models on one text, and each one against the first.

    Args:
        models: where they are, or models of your own with their names; two or more.
        inputs: files, directories, or one prepared corpus of the models' vocabulary.
        split: which split of a prepared corpus; its test split, else valid, when not given.
        field: which field of .jsonl files holds the text.
        reset_state: forget the text before each sentence, for models that carry it on.
        device: of networks.
        threads: of networks; all cores when not given.
        samples: texts drawn for each test.
        seed: of the draws.
        on_progress: called with the name of each model; gives what is called with bytes done and
            in all (None when not known).

    Returns:
        Of each model its evaluation, parameters, megabytes, tokens per second and seconds of
        training; and of all but the first, how likely the difference to it is chance.

    Raises:
        ConfigError: fewer than two models, one is named twice, or no text is to be drawn.
        DataError: a text that cannot be used, or a corpus of another vocabulary.
        ModelError: a model is missing, damaged, or no language model.
    """
    from seqtool.lm.mixture.model import open_language_model

    if isinstance(models, str | Path):
        raise TypeError(f"expected two models or more, not one name: {str(models)!r}")
    names = [model[0] if isinstance(model, tuple) else str(model) for model in models]
    if len(names) < 2:
        what = "there is one model" if names else "there is no model"
        raise ConfigError(f"{what} to compare", hint="name another; -m A -m B")
    if seed < 0 or samples < 1:
        what = f"samples is {samples} and seed is {seed}"
        raise ConfigError(what, hint="give 1 sample or more, and a seed from 0 on")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice} is given twice", hint="name each model once")
    opened = [  # all of them, so that what cannot be opened is refused before the work begins
        model[1]
        if isinstance(model, tuple)
        else open_language_model(Path(model), device=device, threads=threads)
        for model in models
    ]
    results, tables = [], []
    for name, model in zip(names, opened, strict=True):
        evaluate_lm(model, text=["a"])  # so that no model pays for what is linked at first use
        blocks: list[Doubles] = []
        result = evaluate_lm(
            model,
            inputs,
            split=split,
            field=field,
            reset_state=reset_state,
            on_progress=None if on_progress is None else on_progress(name),
            on_scores=partial(_add_sizes, blocks),
        )
        results.append(result)
        tables.append(np.concatenate(blocks))
    per = _unit_of(opened, tables)
    leads = [None, *(_lead(tables[0], other, per, samples, seed) for other in tables[1:])]
    costs = map(_costs_of, models, opened)
    kinds = [model.kind for model in opened]
    compared = zip(names, kinds, results, costs, leads, strict=True)
    return Comparison(tuple(ComparedModel(*each) for each in compared), per, samples, seed)


def _add_sizes(blocks: list[Doubles], scored: ScoredBlock, block: bytes | None) -> None:
    """Append the nats, the tokens and the bytes of each sentence, [S, 3]; no bytes of a corpus."""
    begins = sentence_begins(scored.ids)
    tokens = np.diff(begins, append=len(scored.ids))
    ends = np.flatnonzero(np.frombuffer(block or b"", np.uint8) == ord("\n")) + 1
    num_bytes = np.zeros_like(tokens) if block is None else np.diff(ends, prepend=0)
    nats = np.add.reduceat(scored.log_probs, begins)
    blocks.append(np.stack([nats, tokens, num_bytes], axis=1))


def _unit_of(models: Sequence[LanguageModel], tables: Sequence[Doubles]) -> Unit:
    """Return what bits compare per: bytes, unless all models read the text as the same tokens.

    Models of one vocabulary may not: a literal `</s>` is a token of one that another one skips.
    """
    from seqtool.lm.mixture.model import numbering

    if not tables[0][:, 2].any():  # of a prepared corpus, whose ids are those of all models
        return "token"
    if any((table[:, 1] != tables[0][:, 1]).any() for table in tables[1:]):
        return "byte"
    try:
        for other in models[1:]:
            numbering(models[0].tokenizer, other.tokenizer, "", "")
    except ModelError:  # models that cannot be mixed either
        return "byte"
    return "token"


def _lead(
    first: Doubles, second: Doubles, per: Unit, samples: int, seed: int
) -> Significance | None:
    """Test the difference of the bits of two models.

    None where sentences say nothing of chance: they are fewer than two, all alike or impossible.
    """
    counts_SM = np.stack([first[:, 0], second[:, 0], first[:, 1 + (per == "byte")]], axis=1)
    if not np.isfinite(counts_SM).all() or (counts_SM == counts_SM[:1]).all():
        return None

    def bits(sums_NM: Doubles) -> Doubles:
        of_each = (sums_NM[:, 0] - sums_NM[:, 1]) / sums_NM[:, 2] / LN_2
        return np.asarray(of_each[:, None], np.float64)

    return bootstrap(counts_SM, bits, samples=samples, seed=seed)[0]


def _costs_of(source: str | Path | tuple[str, LanguageModel], model: LanguageModel) -> Costs:
    parameters = getattr(model, "num_parameters", None)
    if isinstance(source, tuple):
        return Costs(parameters, None, None)
    path = Path(source)
    if checkpoint.is_foreign(path):
        return Costs(parameters, path.stat().st_size, None)
    sizes, seconds = 0, list[Any]()
    for part in parts_of(path):
        if checkpoint.is_foreign(part):
            sizes += part.stat().st_size
            continue
        header = checkpoint.read_header(part)
        sizes += sum(checkpoint.file_sizes(checkpoint.find(part), header).values())
        seconds.append(header.scores.get("train_seconds"))
    is_known = seconds and all(isinstance(value, int | float) for value in seconds)
    parameters = checkpoint.read_header(path).num_parameters
    return Costs(parameters, sizes, math.fsum(seconds) if is_known else None)
