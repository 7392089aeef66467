"""`seqtool eval-ppl`: the perplexity of a language model, or of several mixed, on a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.adapting import adaptation_rows, make_dynamic
from seqtool.cli.adapting_options import (
    CacheDecayOption,
    CacheLambdaOption,
    CacheOption,
    CacheThetaOption,
    CacheWindowOption,
    DynamicDecayOption,
    DynamicOption,
    DynamicRateOption,
    DynamicSegmentOption,
    DynamicStatsOption,
    DynamicStatsTokensOption,
    parse_adapting,
)
from seqtool.cli.mixing import (
    ModelsOption,
    WeightsOption,
    check_mixing,
    chosen_models,
    mixed,
    mixture_rows,
    open_parts,
    parse_weights,
    save_measured,
    tuning_remarks,
)
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    ThreadsOption,
    emit,
    note,
)
from seqtool.core.errors import counted

if TYPE_CHECKING:
    from seqtool.lm.protocol import LMEvaluation

SYMBOLS = {"word": "words", "char": "characters", "byte": "bytes"}


def eval_ppl(
    text: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text, one sentence per line: files (also .gz, .zst, .jsonl), directories, - for "
            "stdin, or one prepared corpus. The shipped sample's English test text if not given.",
            show_default=False,
        ),
    ] = None,
    model: ModelsOption = None,
    weights: WeightsOption = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Fit the weights of a mixture, and what is not given of --cache and --dynamic, on "
            "this held-out text (a corpus: its valid split).",
        ),
    ] = None,
    save_mixture: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the mixture as a model that refers to its parts and needs them to stay.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the directory of --save-mixture.")
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Split of a prepared corpus: test, else valid."),
    ] = None,
    field: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field of .jsonl that holds the text.")
    ] = None,
    per_token: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a TSV: sentence, token, surprisal in bits, oov (- is stdout).",
        ),
    ] = None,
    per_sentence: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a TSV: sentence, tokens, oov, log10_probability, perplexity (- is stdout).",
        ),
    ] = None,
    reset_state: Annotated[
        bool,
        typer.Option("--reset-state", help="Begin every sentence anew: a neural model forgets."),
    ] = False,
    cache: CacheOption = False,
    cache_window: CacheWindowOption = None,
    cache_theta: CacheThetaOption = None,
    cache_decay: CacheDecayOption = None,
    cache_lambda: CacheLambdaOption = None,
    dynamic: DynamicOption = False,
    dynamic_rate: DynamicRateOption = None,
    dynamic_decay: DynamicDecayOption = None,
    dynamic_segment: DynamicSegmentOption = None,
    dynamic_stats: DynamicStatsOption = None,
    dynamic_stats_tokens: DynamicStatsTokensOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well a language model predicts a text.

    The perplexity counts every token and the end of each sentence, unknown words included; it is
    given without them too. Compare models of different units by their bits per byte. Several models
    of one vocabulary are mixed: their probabilities are added, with weights that are given, or
    fitted on held-out text. --cache and --dynamic let models adapt to the text itself, each token
    after it was scored, and --tune then chooses their settings too.
    """
    from seqtool.core.errors import ConfigError
    from seqtool.core.progress import progress_bar
    from seqtool.lm.mixture.model import MixedModel
    from seqtool.lm.mixture.weights import evaluate_mixture, tune_mixture
    from seqtool.lm.protocol import evaluate_lm
    from seqtool.lm.score_tables import check_targets

    table_on_stdout = "-" in (per_token, per_sentence)
    if as_json and table_on_stdout:
        raise ConfigError(
            "--json and a table both write to stdout", hint="give the table a file name"
        )
    paths = [str(path) for path in text] if text else [_sample_text()]
    models = chosen_models(model)
    shares = parse_weights(weights, len(models))
    adapting = parse_adapting(
        cache=cache,
        window=cache_window,
        theta=cache_theta,
        decay=cache_decay,
        weight=cache_lambda,
        dynamic=dynamic,
        statistics=dynamic_stats,
        statistics_tokens=dynamic_stats_tokens,
        rate=dynamic_rate,
        dynamic_decay=dynamic_decay,
        segment=dynamic_segment,
        reset_state=reset_state,
    )
    check_mixing(models, paths, weights, adapting, tune=tune, output=save_mixture, force=force)
    check_targets(per_token, per_sentence)
    opened = open_parts(models, device=device, threads=threads)
    learning, dynamic_tunings = make_dynamic(opened, models, adapting, tune=tune, field=field)
    language_model = mixed(learning, models, shares, adapting)
    tuning = mixture = None
    if tune is not None and isinstance(language_model, MixedModel):
        with progress_bar("tuning", is_bytes=True) as on_progress:
            tuning = tune_mixture(
                language_model,
                tune,
                cache=adapting.cache,
                field=field,
                reset_state=reset_state,
                on_progress=on_progress,
            )
        language_model = tuning.model
    options: dict[str, Any] = {
        "reset_state": reset_state,
        "split": split,
        "per_token": per_token,
        "per_sentence": per_sentence,
        "field": field,
    }
    with progress_bar("scoring", is_bytes=True) as on_progress:
        if isinstance(language_model, MixedModel):
            mixture = evaluate_mixture(language_model, paths, on_progress=on_progress, **options)
            result = mixture.result
        else:
            result = evaluate_lm(language_model, paths, on_progress=on_progress, **options)
    if save_mixture is not None and mixture is not None:
        save_measured(save_mixture, mixture, models, paths, tuning)
    if as_json:
        content = result.to_json() if mixture is None else mixture.to_json()
        if tuning is not None:
            content["tuning"] = tuning.to_json()
        if dynamic_tunings:
            content["dynamic_tuning"] = [found.to_json() for found in dynamic_tunings]
        emit(content)
    else:
        is_one = len(models) == 1 and adapting.cache is None
        name = f"{models[0]} ({language_model.kind})" if is_one else "mixture"
        num_tried = 0 if tuning is None else tuning.num_tried
        rows = [
            ("model", name),
            *([] if mixture is None else mixture_rows(mixture, tuning)),
            *adaptation_rows(result.adaptations, dynamic_tunings, num_tried),
        ]
        _show(result, rows, " ".join(paths), to_stderr=table_on_stdout)
    for remark in [*_remarks(result), *tuning_remarks(result, paths, tuning, dynamic_tunings)]:
        note(f"note: {remark}")


def _sample_text() -> str:
    from seqtool.text.sample import sample_text

    path = sample_text("en", "test")
    note(f"no TEXT given: using the shipped sample, {path}")
    return str(path)


def _show(
    result: LMEvaluation, model: Sequence[tuple[str, str]], text: str, *, to_stderr: bool
) -> None:
    """Print the figures as aligned lines; people ask for vocabulary and unknowns beside them."""
    symbols = SYMBOLS.get(result.unit, f"{result.unit} pieces")
    words = result.tokens - result.sentences
    sentences = counted(result.sentences, "sentence")
    text = text if result.split is None else f"{text} ({result.split})"
    rows = [
        ("text", f"{text}: {sentences}, {result.tokens:,} tokens with </s>"),
        *model,
        ("vocabulary", f"{result.vocabulary_size:,} {symbols}"),
    ]
    if result.unit != "byte":  # where nothing can be unknown
        rows.append((f"unknown {symbols}", f"{result.oov:,} of {words:,} ({result.oov_rate:.2%})"))
    rows.append(("perplexity", f"{result.perplexity:,.2f}"))
    if result.oov and result.perplexity_without_oov is not None:
        rows.append(("  without unknown", f"{result.perplexity_without_oov:,.2f}"))
    if result.true_perplexity is not None:
        rows.append(("  of the grammar", f"{result.true_perplexity:,.2f}"))
    rows.append(("bits per token", f"{result.bits_per_token:.4f}"))
    if result.bits_per_byte is not None:
        rows.append(("bits per byte", f"{result.bits_per_byte:.4f}"))
    if result.true_bits_per_byte is not None:
        rows.append(("  of the grammar", f"{result.true_bits_per_byte:.4f}"))
    rows.append(("log10 probability", f"{result.log10_probability:,.2f}"))
    rows.append(("seconds", f"{result.seconds:.1f}"))
    width = 2 + max(len(label) for label, _ in rows)
    for label, value in rows:
        typer.secho(f"{label:<{width}}{value}", bold=label == "perplexity", err=to_stderr)


def _remarks(result: LMEvaluation) -> list[str]:
    remarks = []
    if result.impossible:
        remarks.append(
            f"{result.impossible:,} tokens have no probability at all under this model, so the "
            "perplexity is infinite (null in JSON)"
        )
    if result.true_perplexity is not None:
        if result.oov:
            remarks.append(
                "the grammar's figures are for the words themselves; this model reads some as "
                "<unk>, which is easier, so the two do not compare"
            )
        elif result.perplexity < result.true_perplexity:
            remarks.append(
                "better than the grammar that wrote the text: the model has seen this text before"
            )
    return remarks
