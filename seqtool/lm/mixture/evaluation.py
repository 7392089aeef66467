"""Language models on a text: one, or several as a mixture, which may be tuned and adapt to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError
from seqtool.core.processes import Pool, can_fork, share_of_cores
from seqtool.core.progress import progress_bar
from seqtool.core.reading import find_files, is_corpus, refuse_field
from seqtool.core.runtime import writes_to
from seqtool.lm.evaluation import (
    LMEvaluation,
    ScoredBlock,
    TextBlock,
    check_shared,
    check_targets,
    evaluate_lm,
    resets_for_tables,
    scorer,
)
from seqtool.lm.mixture.model import (
    MixedModel,
    check_apart,
    mix,
    open_language_model,
    open_parts,
    save_model,
)
from seqtool.lm.mixture.weights import Tuning, evaluate_mixture, tune_mixture
from seqtool.lm.protocol import LanguageModel
from seqtool.lm.unknown import warning_of

if TYPE_CHECKING:
    from seqtool.lm.neural.config import DynamicConfig
    from seqtool.lm.neural.dynamic import DynamicTuning


@dataclass(frozen=True)
class ModelsEvaluation:
    """What was measured of one model or a mixture, and what was fitted before.

    Attributes:
        model: as it was measured.
        name: what it is called.
        texts: that it was measured on.
        result: its figures.
        parts: those of the parts of a mixture, as `evaluate_mixture` gives them.
        tuning: the choice of weights, and of a cache's settings; None without.
        dynamic: the choice of settings of dynamic evaluation, of each model that has some chosen.
    """

    model: LanguageModel
    name: str
    texts: Sequence[str]
    result: LMEvaluation
    parts: Sequence[Mapping[str, Any]]
    tuning: Tuning | None
    dynamic: Sequence[DynamicTuning]

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints, beside the text."""
        content = self.result.to_json()
        if isinstance(self.model, MixedModel):
            content |= {"weights": list(self.model.weights), "parts": self.parts}
        if self.tuning is not None:
            content["tuning"] = self.tuning.to_json()
        if self.dynamic:
            content["dynamic_tuning"] = [each.to_json() for each in self.dynamic]
        return content

    def remarks(self) -> Iterator[str]:
        """Give what to say of figures that do not compare, or that something was fitted to get."""
        from seqtool.lm.ngram.model import lacks_unknown

        result, tuning = self.result, self.tuning
        if result.oov and lacks_unknown(self.model):
            yield (
                "note: the ARPA file has no <unk>: each unknown word has a log10 probability of "
                "-100, as in KenLM; SRILM leaves such words out of its perplexity"
            )
        is_dynamic = any(how.kind == "dynamic" for how in result.adaptations)
        if result.impossible:
            yield (
                f"note: {result.impossible:,} tokens have no probability at all under this model, "
                "so the perplexity is infinite (null in JSON)"
            )
        elif is_dynamic and result.perplexity > result.vocabulary_size:
            yield "note: that is worse than guessing; a lower --dynamic-rate may help"
        if result.true_perplexity is not None and result.oov:
            yield (
                "note: the grammar's figures are for the words themselves; this model reads some "
                "as <unk>, which is easier, so the two do not compare"
            )
        elif result.true_perplexity is not None and result.perplexity < result.true_perplexity:
            yield "note: better than the grammar that wrote the text: the model has seen it before"
        measured = [(Path(text).resolve(), result.split) for text in self.texts]
        fitted: list[Tuning | DynamicTuning] = [*filter(None, [tuning]), *self.dynamic]
        if any((Path(each.text).resolve(), each.split) in measured for each in fitted):
            what = "weights" if tuning is not None and not tuning.num_tried else "settings"
            yield (
                f"note: the {what} were fitted on the very text that is measured, so the "
                "perplexity is a little too good"
            )
        if tuning is not None and tuning.fitted.impossible:
            yield (
                f"note: {tuning.fitted.impossible:,} tokens of the tuning text have no probability "
                "under any of the models; the weights were fitted on the others"
            )
        num_words = result.tokens - result.sentences
        if warning := warning_of(result.oov, num_words, result.unknown_words, self.model.tokenizer):
            yield f"warning: {warning}"


@writes_to("output")
def evaluate_models(
    paths: Sequence[Path],
    texts: Sequence[str],
    *,
    cache: Mapping[str, Any] | None = None,
    cache_weight: float | None = None,
    dynamic: Mapping[str, Any] | None = None,
    dynamic_text: str | None = None,
    weights: Sequence[float] | None = None,
    tune: str | None = None,
    output: Path | None = None,
    force: bool = False,
    command: str = "",
    field: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    jobs: int = 1,
    on_trial: Callable[[DynamicConfig, float], None] = lambda config, perplexity: None,
    **options: Any,
) -> ModelsEvaluation:
    """Open models, mix and tune them as asked, measure the whole on a text, and save a mixture.

    The settings `cache` and `dynamic` are those that are fixed, of `CacheConfig` and
    `DynamicConfig`; None for no cache, and for networks that do not learn. `on_trial` is called
    with settings of dynamic evaluation that are tried, and their perplexity. The other arguments
    are options of `seqtool eval-ppl`; split, per_token, per_sentence and reset_state are as of
    `evaluate_lm`.

    Raises:
        ConfigError: options that do not go together.
        DataError: a text that cannot be used.
        ModelError: models that cannot be opened or mixed.
        OutputError: a table or the mixture cannot be written.
    """
    tables = options.get("per_token"), options.get("per_sentence")
    others = [text for text in (tune, dynamic_text) if text is not None]
    is_mixed = len(paths) > 1 or cache is not None
    is_free = dynamic is not None and not {"rate", "decay"} <= dynamic.keys()
    if not is_mixed:
        hint = "name another model with -m, or drop it"
        if tune is not None and not is_free:
            raise ConfigError("--tune is for a mixture, or for settings that are free", hint=hint)
        if output is not None:
            raise ConfigError("--save-mixture is for a mixture", hint=hint)
    if output is not None:
        check_apart(output, paths)
        hint = "replace it with --force, or choose another directory"
        checkpoint.check_output(output, force=force, hint=hint)
    check_targets(*tables, [*texts, *others])
    find_files([name for name in (*texts, *others) if not is_corpus(name)])
    refuse_field(field, [*texts, *others])
    parts = open_parts(paths, device=device, threads=threads)
    tunings: list[DynamicTuning] = []
    if dynamic is not None:
        from seqtool.lm.neural.dynamic import make_dynamic

        how: dict[str, Any] = {"tune": tune, "field": field, "on_trial": on_trial}
        parts, tunings = make_dynamic(parts, paths, dynamic, training_text=dynamic_text, **how)
    model = mix(parts, paths, weights, cache=cache, cache_weight=cache_weight)
    if options.get("reset_state") is None:
        options["reset_state"] = resets_for_tables(model, *tables)
    tuning, rows = None, list[dict[str, Any]]()
    if tune is not None and isinstance(model, MixedModel):
        with progress_bar("tuning", is_bytes=True) as on_progress:
            tuning = tune_mixture(
                model,
                tune,
                cache=cache,
                field=None if is_corpus(tune) else field,
                reset_state=options["reset_state"],
                on_progress=on_progress,
            )
        model = tuning.model
    # where the text is a corpus, the field is of others
    options["field"] = None if is_corpus(texts[0]) else field
    with (
        _pool(model, paths[0], options, jobs, device, threads) as pool,
        progress_bar("scoring", is_bytes=True) as on_progress,
    ):
        if isinstance(model, MixedModel):
            result, rows = evaluate_mixture(model, texts, on_progress=on_progress, **options)
        else:
            result = evaluate_lm(model, texts, on_progress=on_progress, pool=pool, **options)
    name = "mixture" if is_mixed else f"{paths[0]} ({model.kind})"
    measured = ModelsEvaluation(model, name, texts, result, rows, tuning, tunings)
    if output is not None:
        _save(output, measured, paths, command)
    return measured


def _pool(
    model: LanguageModel,
    path: Path,
    options: Mapping[str, Any],
    jobs: int,
    device: str,
    threads: int | None,
) -> AbstractContextManager[Pool[TextBlock, ScoredBlock] | None]:
    """Return the processes that score blocks of text; None where this one does it.

    They are copies of this one, or each opens the model at the path; threads are of each.
    """
    if jobs == 1:
        return nullcontext()
    if isinstance(model, MixedModel):
        raise ConfigError("--jobs is for one model, without a cache", hint="drop one of the two")
    check_shared(model, reset_state=options["reset_state"])
    make: Callable[[], Any] = partial(scorer, model)
    if not (forks := can_fork()):
        make = partial(_open_scorer, path, device, threads or share_of_cores(jobs))
    return Pool(make, jobs, forks=forks)


def _open_scorer(path: Path, device: str, threads: int) -> Callable[[TextBlock], ScoredBlock]:
    return scorer(open_language_model(path, device=device, threads=threads))


def _save(output: Path, measured: ModelsEvaluation, paths: Sequence[Path], command: str) -> None:
    """Write a mixture of the models at these paths with what was measured of it."""
    assert isinstance(measured.model, MixedModel)
    scores = {"perplexity": measured.result.perplexity}
    data: dict[str, Any] = {"measured_on": list(measured.texts)}
    if measured.tuning is not None:
        scores["tuning_perplexity"] = measured.tuning.perplexity
        data |= {"tuned_on": measured.tuning.text, "tuning_tokens": measured.tuning.tokens}
    finite = {name: value for name, value in scores.items() if math.isfinite(value)}
    save_model(output, measured.model, paths, scores=finite, data=data, command=command)
