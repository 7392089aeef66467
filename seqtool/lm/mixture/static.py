"""Several n-gram models mixed into one n-gram model, which needs none of them any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, runtime
from seqtool.core.errors import ConfigError
from seqtool.core.reading import STDIN
from seqtool.lm.evaluation import evaluate_lm
from seqtool.lm.mixture.model import MixedModel, check_reading, check_weights
from seqtool.lm.mixture.weights import Tuning, tune_mixture
from seqtool.lm.ngram.arpa import check_arpa, write_arpa
from seqtool.lm.ngram.model import NgramModel, save_model
from seqtool.lm.ngram.train import EXISTS, open_ngram
from seqtool.lm.ngram.union import aligned, interpolated, union_of
from seqtool.text.tokenizers import Tokenizer, WordTokenizer


@dataclass(frozen=True)
class StaticMixture:
    """A model that was mixed of others.

    Attributes:
        path: its directory.
        arpa: the ARPA file, if one was written.
        model: the mixture itself.
        weights: of the parts.
        tuning: how the weights were fitted, if they were.
        perplexity: on the text of the fit.
    """

    path: Path
    arpa: Path | None
    model: NgramModel
    weights: tuple[float, ...]
    tuning: Tuning | None
    perplexity: float | None


@runtime.writes_to("output")
def mix_ngrams(
    models: Sequence[str | Path],
    output: str | Path,
    *,
    weights: Sequence[float] | None = None,
    tune: str | Path | None = None,
    field: str | None = None,
    arpa: str | Path | None = None,
    force: bool = False,
    threads: int = 1,
    command: str = "",
    on_progress: Callable[[int, int | None], None] | None = None,
) -> StaticMixture:
    """Interpolate n-gram models into one; see `union` for what is exact.

    The models are two or more; their words may differ, other units may not. Their weights are
    fitted on the text `tune`, if there is one, and `on_progress` is called with bytes done and in
    all (None when not known). The other arguments are options of `seqtool ngram mix`.

    Raises:
        ConfigError: weights that are no distribution, one model only, or a text on stdin.
        DataError: a text that cannot be used.
        ModelError: models of other kinds, or that read a text differently.
        OutputError: the output exists, or cannot be written.
    """
    if weights is not None and tune is not None:
        raise ConfigError(
            "--tune fits the weights that --weights gives", hint="drop one of the two"
        )
    if str(tune) == STDIN:
        what = "stdin can be read once, and --tune reads its text again to measure the mixture"
        raise ConfigError(what, hint="name a file")
    if len(models) < 2:
        raise ConfigError("a mixture needs two models or more", hint="name another model")
    if weights is not None:
        weights = check_weights(weights, len(models))
    checkpoint.check_output(output, force=force, hint=EXISTS)
    check_arpa(arpa, [*models, *([] if tune is None else [tune])])
    names = [str(model) for model in models]
    parts = [open_ngram(model, "can be mixed into one") for model in models]
    tokenizer = _tokenizer(parts, names)
    laid_out = aligned(
        [part.table for part in parts],
        [part.tokenizer.vocabulary for part in parts],
        tokenizer.vocabulary,
    )
    mixture = MixedModel([NgramModel(table, tokenizer) for table in laid_out], weights, names=names)
    tuning = None
    if tune is not None:
        tuning = tune_mixture(mixture, tune, field=field, on_progress=on_progress)
        mixture = tuning.model
    model = NgramModel(interpolated(laid_out, mixture.weights), tokenizer)
    del laid_out
    scores: dict[str, float] = {}
    data: dict[str, Any] = {"mixed_of": names, "weights": list(mixture.weights)}
    if tuning is not None:
        evaluation = evaluate_lm(model, tuning.text, split=tuning.split, field=field)
        scores["tuning_perplexity"] = evaluation.perplexity
        data |= {"tuned_on": tuning.text, "tuning_tokens": tuning.tokens}
    config = {"order": model.order}
    save_model(output, model, config=config, scores=scores, data=data, command=command)
    if arpa is not None:
        write_arpa(model.table, tokenizer.vocabulary, arpa, threads=threads)
    target = None if arpa is None else Path(arpa)
    perplexity = scores.get("tuning_perplexity")
    return StaticMixture(Path(output), target, model, mixture.weights, tuning, perplexity)


def _tokenizer(parts: Sequence[NgramModel], names: Sequence[str]) -> Tokenizer:
    """Return what a text is read with for the mixture: the first one's, with the words of all.

    Raises:
        ModelError: models of different units, case or pieces of words.
    """
    first = parts[0].tokenizer
    if not isinstance(first, WordTokenizer):
        return MixedModel(parts, names=names).tokenizer
    for part, name in zip(parts, names, strict=True):
        check_reading(first, part.tokenizer, names[0], name)
    union = union_of([part.tokenizer.vocabulary for part in parts])
    policy = first.special_tokens
    tokenizer = WordTokenizer(union, lowercase=first.lowercase, special_tokens=policy)
    tokenizer.reverse = first.reverse
    return tokenizer
