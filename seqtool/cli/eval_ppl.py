"""`seqtool eval-ppl`: the perplexity of a language model, or of several mixed, on a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.models import ModelsOption, WeightsOption, chosen_models, parse_weights
from seqtool.cli.options import (
    DeviceOption,
    JobsOption,
    JsonOption,
    TestSplitOption,
    TextFieldOption,
    ThreadsOption,
    emit,
    note,
    stdin_instead,
    takes_options,
    typed,
)
from seqtool.cli.perplexities import Measured, show_figures
from seqtool.cli.spark import SparkOptions, tell_left_out
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.runtime import writes_to

if TYPE_CHECKING:
    from seqtool.core.processes import Pool
    from seqtool.lm.evaluation import ScoredBlock, TextBlock
    from seqtool.lm.held_out import HeldOutText
    from seqtool.lm.mixture.config import FreeConfig
    from seqtool.lm.mixture.weights import MixtureEvaluation, Tuning
    from seqtool.lm.neural.dynamic import DynamicTuning
    from seqtool.lm.perplexity import LMEvaluation
    from seqtool.lm.protocol import LanguageModel

CACHE_PANEL = "Cache: adapts to the text that is measured"
DYNAMIC_PANEL = "Dynamic evaluation: adapts to the text that is measured"


def _cache(help: str, metavar: str = "X", min: float = 0, max: float | None = None) -> Any:
    return typer.Option(help=help, metavar=metavar, min=min, max=max, rich_help_panel=CACHE_PANEL)


def _dynamic(help: str, metavar: str = "X", min: float | None = None) -> Any:
    return typer.Option(help=help, metavar=metavar, min=min, rich_help_panel=DYNAMIC_PANEL)


@dataclass(frozen=True)
class AdaptingOptions:
    """Options of models that learn from the text they are measured on."""

    cache: Annotated[
        bool,
        typer.Option(
            "--cache",
            rich_help_panel=CACHE_PANEL,
            help="Mix in a cache: the words that the text itself used last, those in a like state "
            "of the network above all.",
        ),
    ] = False
    cache_window: Annotated[
        int | None,
        _cache("Tokens that it remembers; 2,000 if neither given nor tuned.", "N", min=1),
    ] = None
    cache_theta: Annotated[
        float | None,
        _cache(
            "How strongly the cache prefers words after a similar state (theta of Grave et al. "
            "2017); 0.4 if neither given nor tuned."
        ),
    ] = None
    cache_decay: Annotated[
        float | None,
        _cache(
            "A word fades by exp(-X) with each token after it; 0.004 if neither given nor tuned."
        ),
    ] = None
    cache_lambda: Annotated[
        float | None, _cache("Its share in the mixture; 0.15 if neither given nor tuned.", max=1)
    ] = None
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            rich_help_panel=DYNAMIC_PANEL,
            help="Let a neural model go on learning from the text, each piece after it was scored. "
            "The model on disk stays as it is.",
        ),
    ] = False
    dynamic_rate: Annotated[
        float | None, _dynamic("Learning rate; 0.0001 if neither given nor tuned.")
    ] = None
    dynamic_decay: Annotated[
        float | None,
        _dynamic(
            "How fast the weights go back to the trained ones; 0.008 if neither given nor tuned.",
            min=0,
        ),
    ] = None
    dynamic_segment: Annotated[
        int | None, _dynamic("Tokens between two steps of learning; 20 if not given.", "N", min=1)
    ] = None
    dynamic_stats: Annotated[
        str | None,
        _dynamic(
            "The training text, from which the size of gradients is taken; the corpus of the "
            "training run if not given.",
            "TEXT",
        ),
    ] = None
    dynamic_stats_tokens: Annotated[
        int | None,
        _dynamic("How many of its first tokens are read; 200,000 if not given.", "N", min=1),
    ] = None

    def check(self, *, reset_state: bool) -> None:
        """Refuse options of something that was not asked for, before a model is opened.

        Raises:
            ConfigError: there is such an option, or an impossible value.
        """
        for name, value in vars(self).items():
            switch, _, option = name.partition("_")
            if option and value is not None and not getattr(self, switch):
                raise ConfigError(
                    f"--{name.replace('_', '-')} is for --{switch}",
                    hint=f"add --{switch}, or drop it",
                )
        for switch in ("cache", "dynamic"):
            if getattr(self, switch) and reset_state:
                raise ConfigError(
                    f"--{switch} learns from the text, but --reset-state forgets it with each "
                    "sentence",
                    hint="drop one of the two",
                )
        rate = self.dynamic_rate
        if rate is not None and not rate > 0:
            raise ConfigError(f"--dynamic-rate is {rate:g}", hint="give a learning rate above 0")

    @property
    def cache_settings(self) -> FreeConfig | None:
        """Return the settings of a cache, free where not given; None for no cache."""
        from seqtool.lm.mixture.config import FreeConfig

        if not self.cache:
            return None
        return FreeConfig(self.cache_window, self.cache_theta, self.cache_decay)

    @property
    def dynamic_settings(self) -> dict[str, Any]:
        """Return the settings of dynamic evaluation that are given."""
        settings = {
            "statistics_tokens": self.dynamic_stats_tokens,
            "rate": self.dynamic_rate,
            "decay": self.dynamic_decay,
            "segment": self.dynamic_segment,
        }
        return {name: value for name, value in settings.items() if value is not None}


@takes_options()
@writes_to("save_mixture")
@examples(
    "seqtool eval-ppl -m runs/my",
    "seqtool eval-ppl test.txt -m runs/my --per-token surprisal.tsv",
    "seqtool eval-ppl test.txt -m runs/my -m runs/kn5 --tune dev.txt",
    "seqtool segment raw.txt --rules --format text | seqtool eval-ppl -m runs/my",
)
def eval_ppl(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text, one sentence per line: files (also packed, .jsonl, .parquet), "
            "directories, - for stdin, or one prepared corpus. If not given: stdin where that "
            "is a pipe or a file, else the held-out part of the model's own corpus.",
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
    split: TestSplitOption = None,
    field: TextFieldOption = None,
    per_token: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a table, .tsv, .csv, .jsonl or .parquet: sentence, token, surprisal in "
            "bits, oov (- is TSV on stdout). For one row per word, whatever the unit: seqtool "
            "surprisal.",
        ),
    ] = None,
    per_sentence: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a table: sentence, tokens, oov, log10_probability, perplexity.",
        ),
    ] = None,
    reset_state: Annotated[
        bool,
        typer.Option(
            "--reset-state",
            help="Start every sentence from the initial state, as is the default where a table is "
            "written.",
        ),
    ] = False,
    carry_state: Annotated[
        bool,
        typer.Option(
            "--carry-state",
            help="Carry the state of a neural model from sentence to sentence, as is the default "
            "without a table.",
        ),
    ] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid",
            help="With --engine spark: leave out compressed files that are damaged, and name them; "
            "each is read once before.",
        ),
    ] = False,
    *,
    adapting: AdaptingOptions,
    spark: SparkOptions,
) -> None:
    """Measure how well a language model predicts a text.

    The perplexity counts every token and the end of each sentence, unknown words included; it is
    given without them too. Compare models of different units by their bits per byte. Several models
    of one vocabulary are mixed: their probabilities are added, with weights that are given, or
    fitted on held-out text. --cache and --dynamic let models adapt to the text itself, each token
    after it was scored, and --tune then chooses their settings too.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.core.reading import is_corpus
    from seqtool.lm.evaluation import evaluate_lm
    from seqtool.lm.mixture.model import MixedModel
    from seqtool.lm.mixture.weights import evaluate_mixture, tune_mixture
    from seqtool.lm.perplexity import check_targets

    is_spark = spark.is_spark()
    if skip_invalid and not is_spark:
        what = "--skip-invalid is for --engine spark"
        raise ConfigError(what, hint="add --engine spark, or drop --skip-invalid")
    table_on_stdout = "-" in (per_token, per_sentence)
    if as_json and table_on_stdout:
        raise ConfigError(
            "--json and a table both write to stdout", hint="give the table a file name"
        )
    if reset_state and carry_state:
        raise ConfigError("--reset-state and --carry-state contradict each other", hint="drop one")
    paths = _texts(text, is_spark=is_spark)
    models = chosen_models(model)
    shares = parse_weights(weights, len(models))
    adapting.check(reset_state=reset_state)
    _check_mixing(models, paths, weights, adapting, tune=tune, output=save_mixture, force=force)
    if is_spark:
        found = _evaluate_on_spark(
            spark,
            paths,
            models,
            (per_token, per_sentence),
            field,
            skip_invalid,
            carry_state=carry_state,
            tune=tune,
            split=split,
            jobs=jobs > 1,
            cache=adapting.cache,
            dynamic=adapting.dynamic,
        )
        if as_json:
            emit({"text": paths, "split": None, **found.to_json()})
        else:
            show_figures(found, [("model", str(models[0]))], " ".join(paths), to_stderr=False)
        return
    texts = [text for text in (tune, adapting.dynamic_stats) if text is not None]
    check_targets(per_token, per_sentence, [*paths, *texts])
    language_model, own, dynamic = _opened(
        models,
        shares,
        adapting,
        paths,
        split,
        tune=tune,
        field=field,
        device=device,
        threads=threads,
    )
    if own is not None:
        paths = [*map(str, own.paths)]
        split = own.split if own.is_corpus else None
    has_table = per_token is not None or per_sentence is not None
    if has_table and not (carry_state or reset_state):
        reset_state = _resets_for_table(language_model)
    tuning = mixture = None
    if tune is not None and isinstance(language_model, MixedModel):
        with progress_bar("tuning", is_bytes=True) as on_progress:
            tuning = tune_mixture(
                language_model,
                tune,
                cache=adapting.cache_settings,
                field=None if is_corpus(tune) else field,
                reset_state=reset_state,
                on_progress=on_progress,
            )
        language_model = tuning.model
    options: dict[str, Any] = {"reset_state": reset_state, "split": split}
    # where the text is a corpus, the field is of others
    options["field"] = None if is_corpus(paths[0]) else field
    options |= {"per_token": per_token, "per_sentence": per_sentence}
    with (
        _scorers(language_model, models, options, jobs, device=device, threads=threads) as pool,
        progress_bar("scoring", is_bytes=True) as on_progress,
    ):
        if isinstance(language_model, MixedModel):
            mixture = evaluate_mixture(language_model, paths, on_progress=on_progress, **options)
            result = mixture.result
        else:
            options |= {"on_progress": on_progress, "pool": pool}
            result = evaluate_lm(language_model, paths, **options)
    if save_mixture is not None and mixture is not None:
        _save(save_mixture, mixture, models, paths, tuning)
    is_one = len(models) == 1 and not adapting.cache
    name = f"{models[0]} ({language_model.kind})" if is_one else "mixture"
    measured = Measured(language_model, name, paths, result, mixture, tuning, dynamic)
    if as_json:
        emit(measured.to_json(own.split if own else result.split))
    else:
        measured.show(to_stderr=table_on_stdout)
    for remark in measured.remarks():
        note(remark)


def _texts(text: Sequence[str] | None, *, is_spark: bool) -> list[str]:
    """Return the texts that are named, or stdin; none for those of the model's own corpus."""
    from seqtool.lm.stimuli import is_stimuli

    paths = list(text or [])
    if not paths and not is_spark and stdin_instead("TEXT"):
        return ["-"]
    for table in filter(is_stimuli, paths):
        note(
            f"note: {table} is read as lines of text, separators and names of columns too; "
            "`seqtool surprisal --text-column NAME` reads its column of texts"
        )
    return paths


def _opened(
    models: Sequence[Path],
    weights: Sequence[float] | None,
    adapting: AdaptingOptions,
    texts: Sequence[str],
    split: str | None,
    *,
    tune: str | None,
    field: str | None,
    device: str,
    threads: int | None,
) -> tuple[LanguageModel, HeldOutText | None, list[DynamicTuning]]:
    """Open what is measured: a model, or a mixture, which may adapt to the text.

    Returns:
        The model; the text of its own that is measured where none is named; what was chosen for
        dynamic evaluation, of each model.
    """
    from seqtool.core.reading import refuse_field
    from seqtool.lm.mixture.model import mix, open_parts

    parts = open_parts(models, device=device, threads=threads)
    own = None if texts else held_out(models, split)
    measured = [*texts] if own is None else [*map(str, own.paths)]
    refuse_field(field, [*measured, *filter(None, (tune, adapting.dynamic_stats))])
    tunings: list[DynamicTuning] = []
    if adapting.dynamic:
        from seqtool.lm.neural.dynamic import make_dynamic

        parts, tunings = make_dynamic(
            parts,
            models,
            adapting.dynamic_settings,
            training_text=adapting.dynamic_stats,
            tune=tune,
            field=field,
            on_trial=lambda tried, perplexity: note(
                f"dynamic: rate {tried.rate:g}, decay {tried.decay:g}: perplexity {perplexity:,.2f}"
            ),
        )
    cache, share = adapting.cache_settings, adapting.cache_lambda
    return mix(parts, models, weights, cache=cache, cache_weight=share), own, tunings


def _evaluate_on_spark(
    spark: SparkOptions,
    paths: Sequence[str],
    models: Sequence[Path],
    tables: tuple[str | None, str | None],
    field: str | None,
    skip_invalid: bool,
    **others: object,
) -> LMEvaluation:
    """Measure a model on Spark.

    Args:
        spark: its options.
        paths: of the text.
        models: one.
        tables: of tokens and of sentences: directories.
        field: of .jsonl and .parquet.
        skip_invalid: leave out packed files that are damaged, and say so.
        others: options that are not for Spark, by their names, with what was given.

    Raises:
        ConfigError: options that do not go together.
    """
    from seqtool.spark.scoring import evaluate_files

    spark.refuse(**others, text_column=spark.text_column)
    if len(models) > 1:
        what = "--engine spark measures one model, not a mixture"
        raise ConfigError(what, hint="give one -m")
    per_token, per_sentence = tables
    if per_token and per_sentence:
        raise ConfigError(
            "--engine spark writes one table: --per-token or --per-sentence",
            hint="write that of tokens, and sum it up by file and line",
        )
    for table in filter(None, tables):
        if not table.rstrip("/").endswith(".parquet"):
            raise ConfigError(
                f"{table} is no Parquet, which --engine spark writes",
                hint="name a directory that ends in .parquet",
            )
    files = spark.corpus(paths).paths
    left_out: list[DataError] = []
    with spark.session(compiles_once=True) as session:
        found = evaluate_files(
            session,
            files,
            models[0],
            field=field,
            per_token=per_token,
            per_sentence=per_sentence,
            ship=spark.ship,
            on_damaged=left_out.append if skip_invalid else None,
        )
    tell_left_out(left_out)
    return found


@contextmanager
def _scorers(
    model: LanguageModel,
    paths: Sequence[Path],
    options: Mapping[str, Any],
    jobs: int,
    *,
    device: str,
    threads: int | None,
) -> Iterator[Pool[TextBlock, ScoredBlock] | None]:
    """Give the processes that score blocks of text; None where this one does it.

    Args:
        model: opened.
        paths: where it is.
        options: of `evaluate_lm`.
        jobs: processes.
        device: of each.
        threads: of each; if not given, they share the cores.

    Raises:
        ConfigError: it is a mixture.
    """
    if jobs == 1:
        yield None
        return
    from seqtool.core.processes import Pool, can_fork, share_of_cores
    from seqtool.lm.evaluation import check_shared, scorer
    from seqtool.lm.mixture.model import MixedModel, make_scorer

    if isinstance(model, MixedModel):
        raise ConfigError("--jobs is for one model, without a cache", hint="drop one of the two")
    check_shared(model, reset_state=options["reset_state"])
    with_tokens = options["per_token"] is not None
    make: Callable[[], Any] = partial(scorer, model, with_tokens=with_tokens)
    if not (forks := can_fork()):
        threads = threads or share_of_cores(jobs)
        make = partial(make_scorer, paths[0], device, threads, with_tokens=with_tokens)
    with Pool(make, jobs, forks=forks) as pool:
        yield pool


def held_out(models: Sequence[Path], split: str | None) -> HeldOutText:
    """Return the text that models were not trained on, or a part of their corpus; say which."""
    from seqtool.lm.held_out import held_out_text

    text = held_out_text(models, split=split)
    shown = " ".join(map(str, text.paths))
    part = f"the {text.split} part of {shown}" if text.is_corpus else shown
    was = "was" if text.split == "train" else "was not"
    note(f"no TEXT given: measuring {part}, which the model {was} trained on")
    return text


def _resets_for_table(model: LanguageModel) -> bool:
    """Return whether each sentence begins anew where a table is written, and say what holds."""
    from seqtool.lm.protocol import adaptations_of, carries_state

    if adaptations_of(model):
        note("note: the model learns from the text: a row depends on the sentences before it")
        return False
    if carries_state(model):
        note(
            "note: for the table each sentence begins anew, and the perplexity is of that too; "
            "--carry-state lets the model read on"
        )
    return True


def _check_mixing(
    models: Sequence[Path],
    texts: Sequence[str],
    weights: str | None,
    adapting: AdaptingOptions,
    *,
    tune: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Refuse options of mixing that do not go together, before any model is opened."""
    # --tune has something to choose without a mixture too
    dynamic_is_free = adapting.dynamic and None in (adapting.dynamic_rate, adapting.dynamic_decay)
    for name, is_given in (
        ("--tune", tune is not None and not dynamic_is_free),
        ("--save-mixture", output is not None),
    ):
        if is_given and len(models) == 1 and not adapting.cache:
            if name == "--tune" and adapting.dynamic:
                what = "--dynamic-rate and --dynamic-decay leave --tune nothing to choose"
                raise ConfigError(what, hint="drop one of the three")
            raise ConfigError(
                f"{name} is for a mixture", hint="name another model with -m, or drop it"
            )
    for name, value in (("--weights", weights), ("--cache-lambda", adapting.cache_lambda)):
        if tune is not None and value is not None:
            raise ConfigError(
                f"--tune fits the weights that {name} gives", hint="drop one of the two"
            )
    if output is not None and adapting.dynamic:
        raise ConfigError(
            "what --dynamic learns from a text is not kept, so it cannot be saved",
            hint="drop --dynamic, or --save-mixture",
        )
    others = [text for text in (tune, adapting.dynamic_stats) if text is not None]
    if others:
        from seqtool.core.reading import STDIN, find_files, is_corpus

        if tune == STDIN and dynamic_is_free and (len(models) > 1 or adapting.cache):
            what = "stdin can be read once, and --tune reads its text again for the weights"
            raise ConfigError(what, hint="name a file")
        find_files([name for name in (*texts, *others) if not is_corpus(name)])
    if output is None:
        if force:
            raise ConfigError("--force is for --save-mixture", hint="drop it")
        return
    from seqtool.core import checkpoint
    from seqtool.lm.mixture.model import check_apart

    check_apart(output, models)
    hint = "replace it with --force, or choose another directory"
    checkpoint.check_output(output, force=force, hint=hint)


def _save(
    output: Path,
    mixture: MixtureEvaluation,
    models: Sequence[Path],
    texts: Sequence[str],
    tuning: Tuning | None,
) -> None:
    """Write the mixture of these models with what was measured of it."""
    from seqtool.lm.mixture.model import save_model

    scores = {"perplexity": mixture.result.perplexity}
    data: dict[str, object] = {"measured_on": list(texts)}
    if tuning is not None:
        scores["tuning_perplexity"] = tuning.perplexity
        data |= {"tuned_on": tuning.text, "tuning_tokens": tuning.tokens}
    save_model(
        output,
        mixture.model,
        models,
        scores={name: value for name, value in scores.items() if math.isfinite(value)},
        data=data,
        command=typed(),
    )
