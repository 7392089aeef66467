"""`seqtool eval-ppl`: the perplexity of a language model, of several mixed, or side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.models import ModelsOption, WeightsOption, chosen_models, parse_weights
from seqtool.cli.spark import EngineOptions
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.comparison import ComparedModel, Comparison
    from seqtool.lm.evaluation import LMEvaluation
    from seqtool.lm.held_out import HeldOutText
    from seqtool.lm.mixture.evaluation import ModelsEvaluation

STATES = {"carried": "carried from sentence to sentence", "reset": "each sentence begins anew"}
HUGE = 1e9  # figures from here on are shown with an exponent
SYMBOLS = {"word": "words", "char": "characters", "byte": "bytes"}
# of a comparison: what is shown, under which heading, and how
FIGURES = {
    **{"model": "model", "kind": "kind", "perplexity": "perplexity"},
    **{"bits_per_byte": "bits per byte", "parameters": "parameters", "megabytes": "MB"},
    **{"tokens_per_second": "tokens/s", "train_seconds": "training s"},
}
TESTS = {
    **{"model": "model", "difference": "difference", "low": "95% from", "high": "to"},
    "p_value": "p",
}
FORMS = {
    **{"perplexity": ",.2f", "bits_per_byte": ".4f", "parameters": ",", "megabytes": ",.1f"},
    **{"tokens_per_second": ",.0f", "train_seconds": ",.1f", "p_value": ".4f"},
    **{"difference": "+.4f", "low": "+.4f", "high": "+.4f"},
}
TABLE_ON_STDOUT = "a table on stdout"
NEEDS = {
    **{"--force": "--save-mixture", "--output": "--compare"},
    **{f"--cache-{name}": "--cache" for name in ("window", "theta", "decay", "lambda")},
    **{f"--dynamic-{name}": "--dynamic" for name in ("rate", "decay", "segment", "stats")},
    "--dynamic-stats-tokens": "--dynamic",
}
# option -> those that it does not go with
APART = {
    TABLE_ON_STDOUT: "--json",
    "--reset-state": "--carry-state --cache --dynamic",
    "--tune": "--weights --cache-lambda",
    "--save-mixture": "--dynamic",
    "--compare": "--weights --tune --save-mixture --cache --dynamic --jobs --per-token "
    "--per-sentence",
    "--engine spark": "--carry-state --tune --split --jobs --cache --dynamic --compare "
    "--save-mixture",
}


@dataclass(frozen=True)
class MixtureOptions:
    """How several models become one."""

    weights: WeightsOption = None
    tune: str | None = cli.option(
        None, "Fit what is not given of weights, cache and dynamic on this text.", "TEXT"
    )
    save_mixture: Path | None = cli.option(
        None, "Write the mixture as a model that refers to its parts and needs them to stay.", "DIR"
    )
    force: bool = cli.option(False, "Replace the directory of --save-mixture.")


@dataclass(frozen=True)
class ComparisonOptions:
    """Models side by side."""

    compare: bool = cli.option(
        False, "Show models side by side, each tested against the first one."
    )
    samples: int = cli.option(10_000, "Texts drawn for each test of --compare.", "N", min=1)
    seed: int = cli.option(1, "Seed of the draws of --compare.", "N", min=0)
    output: str | None = cli.option(
        None, "Write the table of --compare; - is TSV on stdout.", "FILE", "-o"
    )


@dataclass(frozen=True)
class TableOptions:
    """Tables of scores."""

    per_token: str | None = cli.option(
        None, "Write a table (as -o) of each token's surprisal in bits.", "FILE"
    )
    per_sentence: str | None = cli.option(
        None, "Write a table: sentence, tokens, oov, log10_probability, perplexity.", "FILE"
    )


@dataclass(frozen=True)
class ReadingOptions:
    """How the text is read."""

    split: cli.TestSplitOption = None
    field: cli.TextFieldOption = None
    reset_state: bool = cli.option(
        False, "Each sentence begins anew, as is the default for a table."
    )
    carry_state: bool = cli.option(False, "A network reads on from sentence to sentence.")


ADAPTATION = "Adaptation"


@dataclass(frozen=True)
class AdaptationOptions:
    """How models learn from the text that they are measured on; what is None may be tuned."""

    cache: bool = cli.option(False, "Mix in the words that the text used last.", panel=ADAPTATION)
    cache_window: int | None = cli.option(
        None, "Tokens that it remembers (2,000).", "N", panel=ADAPTATION
    )
    cache_theta: float | None = cli.option(
        None, "How strongly it prefers words after a similar state (0.4).", "X", panel=ADAPTATION
    )
    cache_decay: float | None = cli.option(
        None, "A word fades by exp(-X) with each token after it (0.004).", "X", panel=ADAPTATION
    )
    cache_lambda: float | None = cli.option(
        None, "Its share in the mixture (0.15).", "X", panel=ADAPTATION
    )
    dynamic: bool = cli.option(
        False, "Let networks go on learning from the text.", panel=ADAPTATION
    )
    dynamic_rate: float | None = cli.option(None, "Learning rate (0.0001).", "X", panel=ADAPTATION)
    dynamic_decay: float | None = cli.option(
        None, "How fast weights go back to the trained ones (0.008).", "X", panel=ADAPTATION
    )
    dynamic_segment: int | None = cli.option(
        None, "Tokens between two steps (20).", "N", panel=ADAPTATION
    )
    dynamic_stats: str | None = cli.option(
        None, "The training text, for the size of gradients.", "TEXT", panel=ADAPTATION
    )
    dynamic_stats_tokens: int | None = cli.option(
        None, "How many of its first tokens are read (200,000).", "N", panel=ADAPTATION
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `evaluate_models`: of settings, those that are given."""
        cache = {"window": self.cache_window, "theta": self.cache_theta, "decay": self.cache_decay}
        dynamic = {"rate": self.dynamic_rate, "decay": self.dynamic_decay}
        dynamic |= {"segment": self.dynamic_segment, "statistics_tokens": self.dynamic_stats_tokens}
        return {
            "cache": _given(cache) if self.cache else None,
            "cache_weight": self.cache_lambda,
            "dynamic": _given(dynamic) if self.dynamic else None,
            "dynamic_text": self.dynamic_stats,
        }


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


@examples(
    "seqtool eval-ppl -m runs/my",
    "seqtool eval-ppl test.txt -m runs/my --per-token surprisal.tsv",
    "seqtool eval-ppl test.txt -m runs/my -m runs/kn5 --tune dev.txt",
    "seqtool eval-ppl test.txt -m runs/my -m runs/kn5 --compare",
    "seqtool segment raw.txt --rules --format text | seqtool eval-ppl -m runs/my",
)
def eval_ppl(
    text: list[str] | None = cli.argument(
        None, "Text, a sentence a line, or a corpus; else the model's own held-out text.", "TEXT"
    ),
    model: ModelsOption = None,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    jobs: cli.JobsOption = 1,
    as_json: cli.JsonOption = False,
    *,
    reading: ReadingOptions,
    mixing: MixtureOptions,
    comparing: ComparisonOptions,
    tables: TableOptions,
    adapting: AdaptationOptions,
    spark: EngineOptions,
) -> None:
    """Measure how well a language model predicts a text.

    The perplexity counts every token and the end of each sentence, unknown words included; it is
    given without them too. Compare models of different units by their bits per byte. Several models
    of one vocabulary are mixed: their probabilities are added, with weights that are given, or
    fitted on held-out text. --cache and --dynamic let models adapt to the text itself, each token
    after it was scored, and --tune then chooses their settings too. With --compare, below 0 a model
    is better than the first: in bits per token, or per byte where tokens differ.
    """
    is_spark, on_stdout = spark.is_spark(), "-" in (*vars(tables).values(), comparing.output)
    groups = vars(reading) | vars(mixing) | vars(comparing) | vars(tables) | vars(adapting)
    _check_options(
        {f"--{name.replace('_', '-')}": value for name, value in groups.items()}
        | {"--json": as_json, TABLE_ON_STDOUT: on_stdout, "--jobs": jobs > 1}
        | {"--engine spark": is_spark}
    )
    paths, models = _texts(text, is_spark=is_spark), chosen_models(model)
    if is_spark:
        return _evaluate_on_spark(spark, models, paths, tables, reading.field, as_json=as_json)
    weights = parse_weights(mixing.weights, len(models))
    split, own = reading.split, None if paths else _held_out(models, reading.split)
    if own is not None:
        paths, split = [*map(str, own.paths)], own.split if own.is_corpus else None
    options: dict[str, Any] = {"split": split, "field": reading.field}
    options |= {"device": device, "threads": threads}
    if comparing.compare:
        options["reset_state"] = reading.reset_state
        return _compare(models, paths, comparing, options, as_json=as_json)
    from seqtool.lm.mixture.evaluation import evaluate_models

    is_chosen = reading.reset_state or reading.carry_state
    found = evaluate_models(
        models,
        paths,
        **adapting.arguments(),
        weights=weights,
        tune=mixing.tune,
        output=mixing.save_mixture,
        force=mixing.force,
        command=cli.typed(),
        jobs=jobs,
        on_trial=lambda tried, perplexity: cli.note(
            f"dynamic: rate {tried.rate:g}, decay {tried.decay:g}: perplexity {perplexity:,.2f}"
        ),
        reset_state=reading.reset_state if is_chosen else None,  # None: as it suits a table
        **options,
        **vars(tables),
    )
    if as_json:
        cli.emit({"text": paths, "split": own and own.split, **found.to_json()})
    else:
        _show(found.result, [*_model_rows(found)], paths, to_stderr=on_stdout)
    if tables != TableOptions() and not is_chosen:
        _note_beginnings(found)
    for remark in found.remarks():
        cli.note(remark)


def _check_options(options: Mapping[str, object]) -> None:
    """Refuse options without those that they need, and beside those that they do not go with."""
    given = {name for name, value in options.items() if value is not None and value is not False}
    for name, other in NEEDS.items():
        if name in given and other not in given:
            raise ConfigError(f"{name} is for {other}", hint=f"add {other}, or drop {name}")
    for name, others in APART.items():
        beside = [other for other in others.split() if other in given]
        if name in given and beside:
            raise ConfigError(f"{name} does not go with {beside[0]}", hint="drop one of the two")


def _texts(text: Sequence[str] | None, *, is_spark: bool) -> list[str]:
    """Return the texts that are named, or stdin; none for those of the model's own corpus."""
    from seqtool.lm.stimuli import is_stimuli

    if not text and not is_spark and cli.stdin_instead("TEXT"):
        return ["-"]
    for table in filter(is_stimuli, text or ()):
        cli.note(
            f"note: {table} is read as lines of text, separators and names of columns too; "
            "`seqtool surprisal --text-column NAME` reads its column of texts"
        )
    return [*(text or ())]


def _held_out(models: Sequence[Path], split: str | None) -> HeldOutText:
    """Return the text that models were not trained on, or a part of their corpus; say which."""
    from seqtool.lm.held_out import held_out_text

    text = held_out_text(models, split=split)
    shown = " ".join(map(str, text.paths))
    part = f"the {text.split} part of {shown}" if text.is_corpus else shown
    was = "was" if text.split == "train" else "was not"
    cli.note(f"no TEXT given: measuring {part}, which the model {was} trained on")
    return text


def _evaluate_on_spark(
    spark: EngineOptions,
    models: Sequence[Path],
    paths: Sequence[str],
    tables: TableOptions,
    field: str | None,
    *,
    as_json: bool,
) -> None:
    """Measure a model on Spark, and print the figures."""
    from seqtool.spark.scoring import evaluate_files

    if not paths or len(models) > 1 or None not in vars(tables).values():
        what = "--engine spark measures one model on files, and writes one table"
        raise ConfigError(what, hint="name TEXT, one -m, and --per-token or --per-sentence")
    with spark.session() as session:
        found = evaluate_files(
            session, paths, models[0], field=field, **vars(tables), ship=spark.ship
        )
    if as_json:
        return cli.emit({"text": paths, "split": None, **found.to_json()})
    _show(found, [("model", str(models[0]))], paths, to_stderr=False)


def _compare(
    models: Sequence[Path],
    paths: Sequence[str],
    comparing: ComparisonOptions,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Show models side by side; the options are those of `compare_lms`."""
    from seqtool.cli.analyse import kept_text
    from seqtool.core.progress import progress_bar
    from seqtool.lm.comparison import COLUMNS, compare_lms
    from seqtool.lm.tables import check_target, write_table

    output = comparing.output
    check_target(output, paths)
    with ExitStack() as stack:
        kept = [str(stack.enter_context(kept_text(path))) for path in paths]
        bars = stack.enter_context(ExitStack())

        def on_progress(name: str) -> Callable[[int, int | None], None]:
            bars.close()
            return bars.enter_context(progress_bar(f"scoring with {name}", is_bytes=True))

        found = compare_lms(
            models,
            kept,
            samples=comparing.samples,
            seed=comparing.seed,
            on_progress=on_progress,
            **options,
        )
    if output is not None:
        write_table(output, COLUMNS, [compared.row() for compared in found.models])
    if as_json:
        content = {"text": paths, "per": found.per, "samples": found.samples, "seed": found.seed}
        cli.emit({**content, "models": [compared.to_json() for compared in found.models]})
    elif output != "-":
        _show_comparison(found, paths)
    for remark in found.remarks:
        cli.note(f"note: {remark}")


def _show_comparison(found: Comparison, paths: Sequence[str]) -> None:
    """Print the models with their figures, and the tests of all but the first."""
    first, *others = found.models
    part = f" ({first.result.split})" if first.result.split else ""
    title = f"{_shown(paths)}{part}: {counted(first.result.sentences, 'sentence')}"
    cli.show_table(title, [*FIGURES.values()], [_cells(model, FIGURES) for model in found.models])
    title = f"\nagainst {first.name}: bits per {found.per}, paired bootstrap over sentences"
    cli.show_table(title, [*TESTS.values()], [_cells(model, TESTS) for model in others])


def _cells(model: ComparedModel, names: Iterable[str]) -> list[str]:
    """Return values of a model by their names in its table, - for none."""
    from seqtool.lm.comparison import COLUMNS

    values = dict(zip(COLUMNS, model.row(), strict=True))
    values["megabytes"] = values["bytes"] and values["bytes"] / 1e6
    return [
        "-" if values[name] is None else format(values[name], FORMS.get(name, "")) for name in names
    ]


def _note_beginnings(found: ModelsEvaluation) -> None:
    """Say how sentences begin in a table, where no option says it."""
    if found.result.adaptations:
        cli.note("note: the model learns from the text: a row depends on the sentences before it")
    elif found.model.carries_state:
        cli.note(
            "note: for the table each sentence begins anew, and the perplexity is of that too; "
            "--carry-state lets the model read on"
        )


def _shown(paths: Sequence[str]) -> str:
    """Return texts as people read their names."""
    return " ".join("stdin" if path == "-" else path for path in paths)


def _model_rows(found: ModelsEvaluation) -> Iterator[tuple[str, str]]:
    """Give the rows about the model: its parts with their weights, how it adapts, its state."""
    yield "model", found.name
    model: Any = found.model
    tuning = found.tuning
    for number, part in enumerate(found.parts):
        weight, name = model.weights[number], part["model"]
        if part["kind"] == "cache":
            share = 1 - part.get("zero_probability_tokens", 0) / found.result.tokens
            worth = f"{name}: has {share:.1%} of the tokens"
        else:
            learns = any(how.kind == "dynamic" for how in model.parts[number].adaptations)
            kind = f"{part['kind']}, dynamic" if learns else part["kind"]
            worth = f"{name} ({kind}): perplexity {part['perplexity']:,.2f} alone"
        yield f"  weight {weight:.4f}", worth
    if tuning is not None:
        what = f"{tuning.text}: {tuning.tokens:,} tokens, perplexity {tuning.perplexity:,.2f}"
        yield "  tuned on", what
    if found.result.adaptations:
        yield "adapting", "to this very text, as it is read; fixed models do not compare"
    chosen = {each.model.name: each for each in found.dynamic}
    for adapted in found.result.adaptations:
        settings = ", ".join(
            f"{name.replace('_', ' ')} {value:{',' if isinstance(value, int) else 'g'}}"
            for name, value in adapted.settings.items()
        )
        how = ""
        if adapted.kind == "cache" and tuning is not None and tuning.num_tried:
            how = f"; the best of {tuning.num_tried:,} settings"
        elif adapted.kind == "dynamic" and (each := chosen.get(adapted.model)):
            how = (
                f"; the best of {len(each.tried)} settings on the first {each.tokens:,} tokens of "
                f"{each.text}, perplexity {each.perplexity:,.2f}"
            )
        yield f"  {adapted.kind}", f"{adapted.model}: {settings}{how}"
    if found.model.carries_state:
        yield "state", STATES[found.result.state]


def _show(
    result: LMEvaluation,
    model: Sequence[tuple[str, str]],
    paths: Sequence[str],
    *,
    to_stderr: bool,
) -> None:
    """Print the figures as aligned lines; people ask for vocabulary and unknowns beside them."""
    symbols = SYMBOLS.get(result.unit, f"{result.unit} pieces")
    words = result.tokens - result.sentences
    part = "" if result.split is None else f" ({result.split})"
    sentences = counted(result.sentences, "sentence")
    rows = [
        ("text", f"{_shown(paths)}{part}: {sentences}, {result.tokens:,} tokens with </s>"),
        *model,
        ("vocabulary", f"{result.vocabulary_size:,} {symbols}"),
    ]
    if result.unit != "byte":  # no byte is unknown
        unknown = f"{result.oov:,} of {words:,} ({result.oov_rate:.2%})"
        rows.append((f"unknown {symbols}", unknown))
    figures: tuple[tuple[str, float | None, str], ...] = (
        ("perplexity", result.perplexity, ",.2f"),
        ("  without unknown", result.perplexity_without_oov if result.oov else None, ",.2f"),
        ("  of the grammar", result.true_perplexity, ",.2f"),
        ("bits per token", result.bits_per_token, ".4f"),
        ("bits per byte", result.bits_per_byte, ".4f"),
        ("  of the grammar", result.true_bits_per_byte, ".4f"),
        ("log10 probability", result.log10_probability, ",.2f"),
        ("seconds", result.seconds, ".1f"),
    )
    for label, value, form in figures:
        if value is not None:  # what has no probability to speak of has forty digits
            rows.append((label, format(value, form if abs(value) < HUGE else ".3e")))
    width = 2 + max(len(label) for label, _ in rows)
    for label, shown in rows:
        echo(f"{label:<{width}}{shown}", bold=label == "perplexity", err=to_stderr)
    if result.files:
        echo("", err=to_stderr)
        measured = [*result.files, ("all", result)]
        cells = [
            [
                _shown([name]),
                *(f"{count:,}" for count in (each.sentences, each.tokens, each.oov)),
                format(each.perplexity, ",.2f" if each.perplexity < HUGE else ".3e"),
                "-" if each.bits_per_byte is None else f"{each.bits_per_byte:.4f}",
            ]
            for name, each in measured
        ]
        columns = ["file", "sentences", "tokens", "unknown", "perplexity", "bits per byte"]
        cli.show_table("", columns, cells, to_stderr=to_stderr)
