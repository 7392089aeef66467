"""`seqtool ngram`: n-gram models made, copied, pruned and mixed; n-grams counted; word classes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqtool.cli import options as cli
from seqtool.cli.models import WeightsOption, names_of, parse_weights
from seqtool.cli.spark import SessionOptions
from seqtool.cli.usage import examples
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, counted
from seqtool.core.progress import progress_bar, stage_bars
from seqtool.core.runtime import available_threads, parse_size
from seqtool.core.terminal import echo, stream
from seqtool.lm.ngram.config import ENGINES

if TYPE_CHECKING:
    from seqtool.lm.ngram.config import WordsConfig
    from seqtool.lm.ngram.listing import Listing
    from seqtool.lm.ngram.train import NgramTraining

CONFIG = "seqtool.lm.ngram.config:NgramConfig"
OUTPUT = Path("runs/ngram")
LISTED = 20  # n-grams that are shown when nothing is said
COUNTED = 2  # the order of n-grams that are counted; that of a model is another
SHOWN = 10  # classes, and words of each
# how a text is read, of every command that counts
READING: cli.OptionTable = cli.same_names("special_tokens", "lowercase")
WORDS: cli.OptionTable = {  # which words there are
    "--vocab": cli.option_for("vocab", metavar="FILE"),
    **cli.same_names("vocab_size", "min_count"),
}

InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CORPUS", help="A prepared corpus, text files or -; else the sample."),
]
FieldOption = Annotated[str | None, typer.Option(metavar="NAME", help=cli.FIELD_HELP)]
ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An n-gram model, or an ARPA file.")
]
ArpaOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write ARPA, too (.gz: packed); - is stdout.")
]


@dataclass(frozen=True)
class CountingOptions:
    """How a text is read and counted."""

    field: FieldOption = None
    threads: cli.ThreadsOption = None
    memory: str | None = cli.option(None, "Memory that it may take, such as 8G.", "SIZE")

    def arguments(self) -> dict[str, Any]:
        """Return them as functions of the library take them."""
        memory = None if self.memory is None else parse_size(self.memory)
        threads = self.threads or available_threads()
        return {"field": self.field, "threads": threads, "memory": memory}


@dataclass(frozen=True)
class SpillOptions(CountingOptions):
    """The same, where the disk takes what the memory does not."""

    temp: str | None = cli.option(
        None, "Folder for temporary files; beside the output if not given.", "DIR", panel="Engine"
    )


@dataclass(frozen=True)
class NewModelOptions:
    """Where a model goes that is made of others."""

    output: Path = cli.option(..., "Where the new model goes.", "DIR", "-o")
    arpa: ArpaOption = None
    threads: cli.ThreadsOption = None
    force: cli.ForceOption = False
    as_json: cli.JsonOption = False

    def arguments(self) -> dict[str, Any]:
        """Return them as functions of the library take them."""
        _refuse_two_outputs(self.arpa, self.as_json, "--arpa")
        threads = self.threads or available_threads()
        return {"arpa": self.arpa, "threads": threads, "force": self.force, "command": cli.typed()}

    def warnings(self, table: Any) -> list[str]:
        """Print and return the warnings of an ARPA file, where one is written."""
        from seqtool.lm.ngram.arpa import warnings_of

        warnings = [] if self.arpa is None else warnings_of(table)
        _warn(warnings)
        return warnings


def _refuse_two_outputs(path: str | Path | None, as_json: bool, option: str = "--output") -> None:
    """Refuse a file and JSON that would both go to stdout."""
    if as_json and str(path) == "-":
        what = f"{option} - and --json would both write to stdout"
        raise ConfigError(what, hint=f"name a file after {option}, or drop --json")


def _show_path(path: Path, arpa: Path | None, text: str = " TEXT") -> None:
    """Print the path of a new model last: to stdout, where no ARPA file went there."""
    cli.note_next(f"eval-ppl{text} -m {{}}", "inspect {}", model=path)
    if str(arpa) == "-":
        return cli.note(str(path))
    if arpa is not None:
        cli.note(f"ARPA file: {arpa}")
    echo(path)


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        cli.note(f"warning: {warning}")


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,} {n}-grams" for n, size in enumerate(sizes, start=1))


def refuse_unprepared(
    context: typer.Context, inputs: Sequence[str | Path], config: WordsConfig
) -> None:
    """Refuse settings that were typed, and that the prepared corpus does not have."""
    from seqtool.core.reading import is_corpus
    from seqtool.lm.ngram.data import PREPARATION
    from seqtool.text.prepared import PreparedCorpus, check_preparation

    if len(inputs) == 1 and is_corpus(inputs[0]):
        given = [name for name in PREPARATION if cli.is_typed(context, name)]
        check_preparation(PreparedCorpus.open(Path(inputs[0])), config, PREPARATION, given)


@cli.takes_options(
    CONFIG,
    {
        **cli.same_names("order", "smoothing", "prune", "prune_entropy", "discounts"),
        **cli.same_names("add", "backoff"),
        **WORDS,
        "--limit-vocab": cli.option_for("limit_vocab", metavar="FILE"),
        "--classes": cli.option_for("classes", metavar="FILE"),
        "--fallback-discounts": cli.option_for("fallback", metavar="D D D"),
        **READING,
    },
    panel=None,
    shows_defaults=True,
)
@examples(
    "seqtool ngram train my.txt --order 5 -o runs/kn5",
    "seqtool ngram train my.txt --prune 0 0 1 --arpa my.arpa.gz",
    "zcat big.gz | seqtool ngram train - --order 3 --vocab lexicon.txt",
    "seqtool ngram train texts/ --engine duckdb --memory 4G --parquet ngrams",
)
def train(
    context: typer.Context,
    inputs: InputsArgument = None,
    output: cli.OutputOption = OUTPUT,
    arpa: ArpaOption = None,
    parquet: Path | None = cli.option(None, "Write the n-grams as Parquet too.", "DIR"),
    engine: str = cli.option(
        "auto",
        "Where to count: memory, disk (duckdb) or Spark; auto is the first that has room.",
        "|".join(ENGINES),
        panel="Engine",
    ),
    skip_invalid: bool = cli.option(False, "Leave out and name files that are damaged."),
    force: cli.ForceOption = False,
    as_json: cli.JsonOption = False,
    *,
    settings: dict[str, Any],
    counting: SpillOptions,
    spark: SessionOptions,
) -> None:
    """Estimate an n-gram model of a text; modified Kneser-Ney, as KenLM has it, by default.

    Order by order, what was counted, kept and discounted is shown.
    """
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import train_ngram

    config = from_dict(NgramConfig, settings)
    # as KenLM's lmplz takes the order
    if str(output).isdigit() and not cli.is_typed(context, "order"):
        what = f"-o {output} would write to {str(output)!r}, and no --order is given"
        raise ConfigError(what, hint=f"the order is --order {output}, and -o names a directory")
    _refuse_two_outputs(arpa, as_json, "--arpa")
    refuse_unprepared(context, inputs or (), config)
    spark.check(is_used=engine == "spark")
    options = {**counting.arguments(), "arpa": arpa, "parquet": parquet, "temp": counting.temp}
    options |= {"skip_invalid": skip_invalid, "force": force, "command": cli.typed()}
    with stage_bars() as on_progress, ExitStack() as stack:
        if engine == "spark":
            from seqtool.spark.ngrams import train_ngram as train_on_spark

            if not inputs:
                what = "--engine spark reads no stdin and no sample"
                raise ConfigError(what, hint="name CORPUS")
            spark.refuse(memory=options.pop("memory"), skip_invalid=options.pop("skip_invalid"))
            session = stack.enter_context(spark.session())
            trained = train_on_spark(
                session, inputs, output, config, on_progress=on_progress, **options
            )
        else:
            texts = inputs or [cli.stdin_or_sample("CORPUS", training="training on")]
            options |= {"engine": engine, "on_progress": on_progress}
            trained = train_ngram(texts, output, config, **options)
    _warn([f"left out {error}" for error in trained.skipped])
    if trained.skipped:
        _warn([f"{counted(len(trained.skipped), 'file')} left out"])
    _warn(trained.warnings)
    if not as_json:
        return _show_training(trained)
    cli.emit(
        {
            "model": trained.path,
            "arpa": trained.arpa,
            "parquet": trained.parquet,
            "engine": trained.engine,
            **counts_to_json(trained),
            "ngrams": trained.num_ngrams,
            "orders": trained.statistics,
            "warnings": trained.warnings,
            "skipped": trained.skipped,
            **trained.scores,
        }
    )


def counts_to_json(trained: Any) -> dict[str, Any]:
    """Return what --json prints of the text and the time of a training."""
    return {
        "seconds": trained.total_seconds,
        "stages": trained.seconds,
        "tokens": trained.num_tokens,
        "sentences": trained.num_sentences,
        "unknown": trained.num_unknown,
        "vocabulary_size": trained.vocabulary_size,
    }


def note_counts(trained: Any) -> None:
    """Say on stderr what was counted."""
    words = trained.num_tokens - trained.num_sentences
    cli.note(
        f"{counted(trained.num_sentences, 'sentence')}, {trained.num_tokens:,} tokens with </s>, "
        f"{trained.num_unknown:,} unknown ({trained.num_unknown / max(1, words):.2%}), "
        f"vocabulary of {trained.vocabulary_size:,}"
    )


def _show_training(trained: NgramTraining) -> None:
    rows = [
        [
            row["order"],
            *(f"{row[name]:,}" for name in ("counted", "ngrams", "singletons")),
            "  ".join(f"{discount:.4f}" for discount in row["discounts"])
            + (" (fallback)" if row["fallback"] else ""),
        ]
        for row in trained.statistics
    ]
    columns = ["order", "n-grams", "kept", "singletons", "discounts"]
    num_columns = 5 if any(row[-1] for row in rows) else 4
    cli.note(f"engine: {trained.engine}")
    note_counts(trained)
    cli.show_table("", columns[:num_columns], [row[:num_columns] for row in rows], to_stderr=True)
    seconds = trained.total_seconds
    parts = ", ".join(f"{stage} {value:.1f}" for stage, value in trained.seconds.items())
    cli.note(f"{seconds:.1f} s ({parts}), {trained.num_tokens / seconds:,.0f} tokens/s")
    for name, value in trained.scores.items():
        cli.note(f"{name.replace('_', ' ')} {value:.2f}")
    # what was measured here has a text of its own, and TEXT can be left out
    _show_path(trained.path, trained.arpa, "" if trained.scores else " TEXT")


@examples(
    "seqtool ngram export runs/kn5 my.arpa.gz",
    "seqtool ngram export runs/kn5 - | head",
    "seqtool ngram export runs/kn5 closed.arpa --no-unk",
)
def export(
    model: ModelArgument,
    target: str = cli.argument(..., "The ARPA file (.gz: packed), or - for stdout.", "FILE"),
    no_unk: bool = cli.option(False, "Leave out <unk>; other words keep their probability."),
    threads: cli.ThreadsOption = None,
) -> None:
    """Write an n-gram model as an ARPA file, which KenLM, SRILM and others read.

    KenLM's binary format is neither written nor read: its build_binary makes it of this file.
    """
    from seqtool.lm.ngram.arpa import warnings_of, write_arpa
    from seqtool.lm.ngram.train import open_ngram

    opened = open_ngram(model, "have an ARPA form")
    table = opened.table
    with progress_bar("export") as on_progress:
        num = write_arpa(
            table,
            opened.tokenizer.vocabulary,
            target,
            with_unknown=not no_unk,
            threads=threads or available_threads(),
            on_progress=on_progress,
        )
    _warn(warnings_of(table))
    if target != "-":
        orders = f"orders 1 to {table.order}" if table.order > 1 else "order 1"
        cli.note(f"{num:,} n-grams of {orders}, {Path(target).stat().st_size:,} bytes")
        echo(target)


@examples("seqtool ngram import my.arpa.gz -o runs/imported")
def import_(
    source: str = cli.argument(..., "An ARPA file of any program, or - for stdin.", "FILE"),
    output: cli.OutputOption = OUTPUT,
    lowercase: bool = cli.option(False, "The model is of lower-cased text."),
    force: cli.ForceOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Turn an ARPA file into a model directory, which opens at once.

    KenLM's binary format is not read: import the ARPA file that it was made of.
    """
    from seqtool.lm.ngram.train import import_ngrams

    start = time.perf_counter()
    options: dict[str, Any] = {"lowercase": lowercase, "force": force, "command": cli.typed()}
    with progress_bar("import", is_bytes=True) as on_progress:
        table, notes = import_ngrams(source, output, on_progress=on_progress, **options)
    for line in notes:
        cli.note(line)
    sizes = [len(level) for level in table.levels]
    seconds = time.perf_counter() - start
    if as_json:
        about = {"order": table.order, "ngrams": sizes, "vocabulary_size": table.vocabulary_size}
        return cli.emit({"model": output, **about, "notes": notes, "seconds": seconds})
    cli.note(f"{_sizes(sizes)} in {seconds:.1f} s")
    echo(output)


@examples(
    "seqtool ngram prune runs/kn5 -o runs/small",
    "seqtool ngram prune big.arpa.gz --threshold 1e-7 -o small --arpa small.arpa",
    "seqtool ngram prune big.arpa.gz --vocab words.txt -o small",
)
def prune(
    model: ModelArgument,
    threshold: float | None = cli.option(
        None, "How much the perplexity may grow, by each n-gram (1e-8; none with --vocab).", "X"
    ),
    vocab: str | None = cli.option(
        None, "Keep the words of this list alone; <unk> is as probable as all others.", "FILE"
    ),
    *,
    new: NewModelOptions,
) -> None:
    """Leave out the n-grams that matter least, by relative entropy (Stolcke 1998).

    What SRILM does as `ngram -prune`; with --vocab, what its change-lm-vocab does: n-grams with
    other words go, and the backoffs follow from what is left. The model that is read stays.
    """
    from seqtool.lm.ngram.train import prune_model

    before, after = prune_model(model, new.output, threshold, vocab=vocab, **new.arguments())
    old = [len(level) for level in before.levels]
    kept = [len(level) for level in after.levels]
    kept += [0] * (len(old) - len(kept))
    warnings = new.warnings(after)
    if new.as_json:
        about = {"order": after.order, "before": old, "ngrams": kept, "warnings": warnings}
        return cli.emit({"model": new.output, "arpa": new.arpa, **about})
    rows = [*zip(range(1, len(old) + 1), old, kept, strict=True), ("all", sum(old), sum(kept))]
    # pruned by counts, an order may be empty already
    cells = [[n, f"{a:,}", f"{b:,}", f"{b / max(1, a):.1%}"] for n, a, b in rows]
    cli.show_table("", ["order", "n-grams", "kept", "share"], cells, to_stderr=True)
    _show_path(new.output, new.arpa)


@examples(
    "seqtool ngram mix runs/news runs/talk --tune dev.txt -o mix --arpa mix.arpa",
    "seqtool ngram mix a.arpa b.arpa --weights 0.3,0.7 -o runs/mixed",
)
def mix(
    models: list[Path] = cli.argument(..., "Two n-gram models or more, or ARPA.", "MODEL"),
    weights: WeightsOption = None,
    tune: str | None = cli.option(None, "Fit the weights on this held-out text.", "TEXT"),
    field: cli.TextFieldOption = None,
    *,
    new: NewModelOptions,
) -> None:
    """Interpolate n-gram models into one, with the words and the n-grams of all.

    Probabilities of n-grams that any of them has are exact; for others the new model backs off.
    """
    from seqtool.lm.mixture.static import mix_ngrams

    names = names_of(models)
    options = {**new.arguments(), "tune": tune, "field": field}
    options["weights"] = parse_weights(weights, len(models)) if len(models) > 1 else None
    with progress_bar("tuning", is_bytes=True) as on_progress:
        mixed = mix_ngrams(models, new.output, on_progress=on_progress, **options)
    warnings, sizes = new.warnings(mixed.model.table), [*map(len, mixed.model.table.levels)]
    if new.as_json:
        about = {"weights": list(mixed.weights), "ngrams": sizes, "warnings": warnings}
        if mixed.tuning is not None:
            about |= {"perplexity": mixed.perplexity, "tuning": mixed.tuning.to_json()}
        return cli.emit({"model": mixed.path, "arpa": mixed.arpa, **about})
    rows = [[name, f"{weight:.4f}"] for name, weight in zip(names, mixed.weights, strict=True)]
    cli.show_table("", ["model", "weight"], rows, to_stderr=True)
    cli.note(_sizes(sizes))
    if mixed.tuning is not None:
        cli.note(
            f"perplexity of {mixed.tuning.text}: {mixed.perplexity:.2f}; of the models mixed at "
            f"every word, by `eval-ppl`: {mixed.tuning.perplexity:.2f}"
        )
    _show_path(mixed.path, new.arpa)


@cli.takes_options(
    CONFIG,
    {
        "--order": cli.option_for("order", help=f"Length of the n-grams; {COUNTED} if not given."),
        **READING,
    },
    panel=None,
)
@examples(
    "seqtool ngram counts my.txt --top 20",
    "seqtool ngram counts my.txt --order 3 --filter dog -o trigrams.tsv",
)
def counts(
    inputs: InputsArgument = None,
    top: int | None = cli.option(
        None, f"How many; 0 is all. {LISTED}, or all with -o.", "N", min=0
    ),
    min_count: int = cli.option(1, "Leave out n-grams that are rarer.", "N"),
    sort: Literal["frequency", "text"] = cli.option(
        "frequency", "What to sort by.", "frequency|text"
    ),
    filters: list[str] | None = cli.option(
        None, "Only n-grams with this word; repeatable.", "WORD", "--filter"
    ),
    boundaries: bool = cli.option(False, "Also n-grams with <s> and </s>."),
    output: str | None = cli.option(None, "A .tsv, .csv, .jsonl or .parquet.", "FILE", "-o"),
    as_json: cli.JsonOption = False,
    *,
    settings: dict[str, Any],
    counting: SpillOptions,
) -> None:
    """Count the n-grams of a text: a table on a terminal, tab-separated values elsewhere.

    A text that is too large for the memory is counted by DuckDB.
    """
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.listing import list_ngrams
    from seqtool.lm.tables import check_target

    _refuse_two_outputs(output, as_json)
    check_target(output, inputs or ())
    config = from_dict(NgramConfig, {"order": COUNTED, **settings})
    path = Path(output or "-")
    beside = None if str(path) == "-" or (path.exists() and not path.is_file()) else path.parent
    top = (LISTED if output is None else 0) if top is None else top
    with ExitStack() as stack:
        with stage_bars() as on_progress:
            listed = list_ngrams(
                inputs or [cli.stdin_or_sample("CORPUS", training="counting")],
                config,
                top=top or None,
                min_count=min_count,
                sort=sort,
                filters=filters or (),
                boundaries=boundaries,
                folder=counting.temp or beside,
                on_progress=on_progress,
                **counting.arguments(),
            )
            listing = stack.enter_context(listed)
        if output is not None or not as_json:
            _show_listing(listing, output)
        if not as_json:
            what = f"n-grams of order {config.order}"
            return cli.note(f"{listing.num_chosen:,} of {listing.distinct:,} {what}")
        rows = [
            {"ngram": words, "count": count}
            for ngrams, numbers in listing.pieces()
            for words, count in zip(ngrams, numbers.tolist(), strict=True)
        ]
    about = {"order": listing.order, "distinct": listing.distinct, "total": listing.total}
    cli.emit({**about, "ngrams": rows})


def _show_listing(listing: Listing, output: str | None) -> None:
    """Print the n-grams as a table to a terminal, or as TSV, or write them to a file."""
    import numpy as np

    from seqtool.lm.tables import open_table

    names = ("count", "per million", "n-gram")
    rate = 1e6 / max(1, listing.total)
    if output is None and stream().isatty():
        rows = [
            (count, f"{count * rate:.1f}", " ".join(words))
            for ngrams, numbers in listing.pieces()
            for words, count in zip(ngrams, numbers.tolist(), strict=True)
        ]
        return cli.show_table("", names, rows)
    with open_table(output or "-") as table:
        # their names and types, also where there is no n-gram
        nothing = (np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.str_))
        table.write(dict(zip(names, nothing, strict=True)))
        for ngrams, numbers in listing.pieces():
            columns = (numbers, numbers * rate, [*map(" ".join, ngrams)])
            table.write(dict(zip(names, columns, strict=True)))


@cli.takes_options(
    "seqtool.lm.ngram.config:WordsConfig", {**WORDS, **READING}, panel=None, shows_defaults=True
)
@examples(
    "seqtool ngram classes my.txt --num 200 -o classes.tsv",
    "seqtool ngram train my.txt --classes classes.tsv -o runs/classes",
)
def classes(
    inputs: InputsArgument = None,
    num: int = cli.option(100, "How many classes.", "N", min=1),
    sweeps: int = cli.option(20, "How many times each word may move, at most.", "N", min=1),
    srilm: bool = cli.option(False, "Write lines of SRILM: CLASS PROBABILITY WORD."),
    output: str = cli.option("-", "The file to write, or stdout.", "FILE", "-o"),
    as_json: cli.JsonOption = False,
    *,
    settings: dict[str, Any],
    counting: CountingOptions,
) -> None:
    """Put words into classes by the words beside them, for `ngram train --classes`.

    The exchange algorithm (Kneser & Ney 1993; Martin, Liermann & Ney 1998): words go, one after
    another, to the class that makes a class bigram model of the text better, until none moves. The
    file has a word and the number of its class in each line.
    """
    from seqtool.lm.ngram.arpa import check_target
    from seqtool.lm.ngram.classes import write_classes
    from seqtool.lm.ngram.config import WordsConfig
    from seqtool.lm.ngram.exchange import make_classes

    _refuse_two_outputs(output, as_json)
    config = from_dict(WordsConfig, settings)
    check_target(output, [*(inputs or ()), *config.files])
    texts = inputs or [cli.stdin_or_sample("CORPUS", training="making classes of")]
    options = counting.arguments() | {"num": num, "max_sweeps": sweeps}
    with stage_bars() as on_progress:
        made = make_classes(texts, config, on_progress=on_progress, **options)
    write_classes(output, made.classes, made.word_shares, srilm=srilm)
    num_words = sum(map(len, made.classes))
    if as_json:
        about = {"classes": output, "num": len(made.classes), "words": num_words}
        return cli.emit({**about, "perplexities": made.perplexities, "moved": made.num_moved})
    rows = []
    for number, words in enumerate(made.classes[:SHOWN], start=1):
        some = " ".join(words[:SHOWN]) + (" ..." if len(words) > SHOWN else "")
        rows.append([number, f"{len(words):,}", f"{made.shares[number - 1]:.1%}", some])
    cli.show_table("", ["class", "words", "share", "most frequent"], rows, to_stderr=True)
    first, *_, last = made.perplexities
    moved = made.num_moved[-1]
    cli.note(
        f"{num_words:,} words in {len(made.classes):,} classes: perplexity of the text by class "
        f"bigrams {first:.2f} -> {last:.2f} in {len(made.num_moved)} sweeps"
        + (f"; {moved:,} words moved in the last one" if moved else "")
    )
    if output != "-":
        cli.note_next("ngram train CORPUS --classes {}", model=Path(output))
        echo(output)
