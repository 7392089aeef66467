"""`seqtool ngram`: estimate n-gram models, turn them to and from ARPA, count n-grams."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import (
    FIELD_HELP,
    UNNAMED,
    ForceOption,
    JsonOption,
    MemoryOption,
    Offer,
    OutputOption,
    ThreadsOption,
    emit,
    is_typed,
    note,
    note_next,
    offer,
    show_table,
    stdin_or_sample,
    takes_options,
    typed,
)
from seqtool.cli.spark import CountingEngineOption, SessionOptions, TempOption
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted
from seqtool.core.terminal import echo, json_text, stream

if TYPE_CHECKING:
    from seqtool.lm.ngram.config import WordsConfig
    from seqtool.lm.ngram.listing import Listing
    from seqtool.lm.ngram.train import NgramTraining

CONFIG = "seqtool.lm.ngram.config:NgramConfig"
OUTPUT = Path("runs/ngram")
LISTED = 20  # n-grams that are shown when nothing is said
COUNTED = 2  # the order of n-grams that are counted; that of a model is another
READING: dict[str, str | Offer] = {  # how a text is read, of every command that counts
    "--special-tokens": offer(
        "special_tokens",
        help="A literal <unk>, <s> or </s> in the text: <unk> is the unknown word and the "
        "others are refused (auto), all are unknown words, left out, or refused.",
    ),
    "--lowercase": "lowercase",
}

InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CORPUS",
        help="A prepared corpus, or text: files (packed, .jsonl, .parquet too), directories, or "
        f"- for stdin. {UNNAMED} the shipped English sample.",
    ),
]
ArpaOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the model as ARPA too (.gz: packed), or to stdout (-)."
    ),
]
FieldOption = Annotated[str | None, typer.Option(metavar="NAME", help=FIELD_HELP)]
ParquetOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the n-grams as Parquet too, with log-probability and backoff (nats).",
    ),
]
SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-invalid",
        help="Leave out files that are damaged or not UTF-8, and name them; all are read first.",
    ),
]


@takes_options(
    CONFIG,
    {
        "--order": "order",
        "--smoothing": offer(
            "smoothing",
            help="modified-kneser-ney, kneser-ney, absolute-discounting, witten-bell, add-k, "
            "stupid-backoff or maximum-likelihood.",
        ),
        "--prune": offer(
            "prune",
            help="Per order, leave out n-grams that occur at most this often; the last number "
            "holds for the longer ones too. As KenLM has it: 0 0 1.",
        ),
        "--prune-entropy": offer(
            "prune_entropy",
            help="Leave out n-grams without which the perplexity grows by less than this share of "
            "it (Stolcke 1998), as SRILM's -prune: 1e-8, say.",
        ),
        "--vocab": offer("vocab", help="A closed vocabulary, one word a line.", metavar="FILE"),
        "--limit-vocab": offer(
            "limit_vocab",
            help="The words that the model may have, one a line, where other words shall not count "
            "as unknown: after counting, n-grams with them are left out, as KenLM has it.",
            metavar="FILE",
        ),
        "--vocab-size": "vocab_size",
        "--min-count": "min_count",
        "--classes": offer(
            "classes",
            help="A class for each word, a word and its class a line, as `ngram classes` writes "
            "them: n-grams of classes, and words within classes by their counts.",
            metavar="FILE",
        ),
        "--discounts": offer(
            "discounts",
            help="Discounts as the paper has them, or with KenLM's slip at the end of a text.",
        ),
        "--fallback-discounts": offer(
            "fallback",
            help="Discounts where the counts give none that are valid (0.5 1 1.5).",
            metavar="D D D",
        ),
        "--add": "add",
        "--backoff": "backoff",
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
    output: OutputOption = OUTPUT,
    field: FieldOption = None,
    arpa: ArpaOption = None,
    parquet: ParquetOption = None,
    engine: CountingEngineOption = "auto",
    threads: ThreadsOption = None,
    memory: MemoryOption = None,
    temp: TempOption = None,
    skip_invalid: SkipOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    *,
    settings: dict[str, Any],
    spark: SessionOptions,
) -> None:
    """Estimate an n-gram model of a text; modified Kneser-Ney, as KenLM has it, by default.

    Order by order, what was counted, kept and discounted is shown.
    """
    from seqtool.core.config import from_dict
    from seqtool.core.progress import stage_bars
    from seqtool.core.runtime import available_threads, parse_size
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import train_ngram

    config = from_dict(NgramConfig, settings)
    if not is_typed(context, "order"):
        _refuse_order_as_output(str(output), "DIR")
    refuse_two_outputs(arpa, as_json=as_json)
    refuse_unprepared(context, inputs or (), config)
    spark.check(is_used=engine == "spark")
    options: dict[str, Any] = {"arpa": arpa, "parquet": parquet, "force": force, "temp": temp}
    with stage_bars() as on_progress, ExitStack() as stack:
        options |= {"command": typed(), "on_progress": on_progress}
        if engine == "spark":
            from seqtool.spark.ngrams import is_short
            from seqtool.spark.ngrams import train_ngram as train_on_spark

            spark.refuse(memory=memory)
            if not inputs:
                what = "--engine spark reads no stdin and no sample"
                raise ConfigError(what, hint="name CORPUS")
            files = [str(path) for path in inputs]
            session = stack.enter_context(spark.session(compiles_once=is_short(files)))
            threads = threads or available_threads()
            options |= {"field": field, "threads": threads, "skip_invalid": skip_invalid}
            trained = train_on_spark(session, files, output, config, **options)
        else:
            trained = train_ngram(
                inputs or [stdin_or_sample("CORPUS", training="training on")],
                output,
                config,
                field=field,
                engine=engine,
                threads=threads,
                memory=None if memory is None else parse_size(memory),
                skip_invalid=skip_invalid,
                **options,
            )
    for error in trained.skipped:
        note(f"warning: left out {error}")
    if trained.skipped:
        note(f"warning: {counted(len(trained.skipped), 'file')} left out")
    for warning in trained.warnings:
        note(f"warning: {warning}")
    if not as_json:
        _show_training(trained)
        return
    emit(
        {
            "model": trained.path,
            "arpa": trained.arpa,
            "parquet": trained.parquet,
            "engine": trained.engine,
            "seconds": trained.total_seconds,
            "stages": trained.seconds,
            "tokens": trained.num_tokens,
            "sentences": trained.num_sentences,
            "unknown": trained.num_unknown,
            "vocabulary_size": trained.vocabulary_size,
            "ngrams": trained.num_ngrams,
            "orders": trained.statistics,
            "warnings": trained.warnings,
            "skipped": trained.skipped,
            **trained.scores,
        }
    )


def refuse_two_outputs(arpa: Path | None, *, as_json: bool) -> None:
    """Refuse an ARPA file and JSON that would both go to stdout.

    Raises:
        ConfigError: so it is.
    """
    if as_json and is_stdout(arpa):
        raise ConfigError(
            "--arpa - and --json would both write to stdout",
            hint="name a file after --arpa, or drop --json",
        )


def is_stdout(arpa: Path | None) -> bool:
    """Return whether an ARPA file goes to stdout, where nothing else may then be written."""
    return str(arpa) == "-"


def show_path(path: Path, arpa: Path | None) -> None:
    """Print the path of a new model last: to stdout, where no ARPA file went there."""
    if arpa is not None and not is_stdout(arpa):
        note(f"ARPA file: {arpa}")
    (note if is_stdout(arpa) else echo)(str(path))


def refuse_unprepared(
    context: typer.Context, inputs: Sequence[str | Path], config: WordsConfig
) -> None:
    """Refuse settings that were typed, and that the prepared corpus does not have."""
    from seqtool.core.reading import is_corpus
    from seqtool.lm.ngram.data import PREPARATION, check_preparation
    from seqtool.text.prepared import PreparedCorpus

    if len(inputs) == 1 and is_corpus(inputs[0]):
        given = [name for name in PREPARATION if is_typed(context, name)]
        check_preparation(PreparedCorpus.open(Path(inputs[0])), config, given)


def _refuse_order_as_output(output: str, metavar: str) -> None:
    """Refuse `-o 5` and `-order 5` where no order is given: so other programs take the order.

    Raises:
        ConfigError: the output is a number, or the rest of `-order`.
    """
    if output == "rder":
        raise ConfigError(
            "-order is read as -o rder, the output, and no --order is given",
            hint="the option has two dashes here: --order N",
        )
    if re.fullmatch("[0-9]+", output):
        raise ConfigError(
            f"-o {output} would write to {output!r}, and no --order is given",
            hint=f"for an order of {output}: --order {output} -o {metavar}; to write there: "
            f"--order N -o {output}",
        )


def _show_training(trained: NgramTraining) -> None:
    columns = ["order", "n-grams", "kept", "singletons", "discounts"]
    rows = [
        [
            row["order"],
            *(f"{row[name]:,}" for name in ("counted", "ngrams", "singletons")),
            "  ".join(f"{discount:.4f}" for discount in row["discounts"])
            + (" (fallback)" if row["fallback"] else ""),
        ]
        for row in trained.statistics
    ]
    if not any(row["discounts"] for row in trained.statistics):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    words = trained.num_tokens - trained.num_sentences
    note(f"engine: {trained.engine}")
    note(
        f"{counted(trained.num_sentences, 'sentence')}, {trained.num_tokens:,} tokens with </s>, "
        f"{trained.num_unknown:,} unknown ({trained.num_unknown / max(1, words):.2%}), "
        f"vocabulary of {trained.vocabulary_size:,}"
    )
    show_table("", columns, rows, to_stderr=True)
    seconds = trained.total_seconds
    parts = ", ".join(f"{stage} {value:.1f}" for stage, value in trained.seconds.items())
    note(f"{seconds:.1f} s ({parts}), {trained.num_tokens / seconds:,.0f} tokens/s")
    for name, value in trained.scores.items():
        note(f"{name.replace('_', ' ')} {value:.2f}")
    # what was measured here has a text of its own, and TEXT can be left out
    measuring = "eval-ppl" if trained.scores else "eval-ppl TEXT"
    note_next(f"{measuring} -m {{}}", "inspect {}", model=trained.path)
    show_path(trained.path, trained.arpa)


@examples(
    "seqtool ngram export runs/kn5 my.arpa.gz",
    "seqtool ngram export runs/kn5 - | head",
    "seqtool ngram export runs/kn5 closed.arpa --no-unk",
)
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An n-gram model.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="The ARPA file to write (.gz: packed), or - for stdout."
        ),
    ],
    no_unk: Annotated[
        bool,
        typer.Option(
            "--no-unk",
            help="Leave out <unk> and its n-grams, for programs that know no unknown word; the "
            "other words keep their probabilities.",
        ),
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Write an n-gram model as an ARPA file, which KenLM, SRILM and others read.

    KenLM's binary format is neither written nor read: its build_binary makes it of this file.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.core.runtime import available_threads
    from seqtool.lm.ngram.arpa import warnings_of, write_arpa
    from seqtool.lm.ngram.train import open_ngram

    opened = open_ngram(model, "have an ARPA form")
    table, vocabulary = opened.table, opened.tokenizer.vocabulary
    with progress_bar("export") as on_progress:
        num = write_arpa(
            table,
            vocabulary,
            target,
            with_unknown=not no_unk,
            threads=threads or available_threads(),
            on_progress=on_progress,
        )
    for warning in warnings_of(table):
        note(f"warning: {warning}")
    if target != "-":
        size = Path(target).stat().st_size
        orders = f"orders 1 to {table.order}" if table.order > 1 else "order 1"
        note(f"{num:,} n-grams of {orders}, {size:,} bytes")
        echo(target)


@examples("seqtool ngram import my.arpa.gz -o runs/imported")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="An ARPA file of KenLM, SRILM, IRSTLM or another program, or - for stdin.",
        ),
    ],
    output: OutputOption = OUTPUT,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="The model is of lower-cased text.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn an ARPA file into a model directory, which opens at once.

    KenLM's binary format is not read: import the ARPA file that it was made of.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.lm.ngram.train import import_ngrams

    start = time.perf_counter()
    with progress_bar("import", is_bytes=True) as on_progress:
        table, notes = import_ngrams(
            source,
            output,
            lowercase=lowercase,
            force=force,
            command=typed(),
            on_progress=on_progress,
        )
    for line in notes:
        note(line)
    sizes = [len(level) for level in table.levels]
    seconds = time.perf_counter() - start
    if as_json:
        about = {"order": table.order, "ngrams": sizes, "vocabulary_size": table.vocabulary_size}
        return emit({"model": str(output), **about, "notes": notes, "seconds": seconds})
    shown = ", ".join(f"{size:,} {n}-grams" for n, size in enumerate(sizes, start=1))
    note(f"{shown} in {seconds:.1f} s")
    echo(output)


@takes_options(
    CONFIG,
    {"--order": offer("order", help=f"Length of the n-grams; {COUNTED} if not given.")} | READING,
    panel=None,
)
@examples(
    "seqtool ngram counts my.txt --top 20",
    "seqtool ngram counts my.txt --order 3 --filter dog -o trigrams.tsv",
)
def counts(
    inputs: InputsArgument = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"How many, the most frequent; 0 is all. {LISTED}, or all with -o.",
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(metavar="N", help="Leave out n-grams that are rarer.")
    ] = 1,
    sort: Annotated[
        str, typer.Option(metavar="frequency|text", help="What to sort by.")
    ] = "frequency",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="WORD",
            help="Only n-grams with this word; repeatable, then with all of them.",
        ),
    ] = None,
    boundaries: Annotated[
        bool, typer.Option("--boundaries", help="Also n-grams with <s> and </s>.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write them there: .tsv, .csv, .jsonl or .parquet.",
        ),
    ] = None,
    field: FieldOption = None,
    threads: ThreadsOption = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory that it may take, such as 8G; half of what is free if not given. What "
            "does not fit goes to disk.",
        ),
    ] = None,
    temp: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for temporary files; beside the file of -o, or the system's, if not "
            "given.",
        ),
    ] = None,
    as_json: JsonOption = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Count the n-grams of a text: a table on a terminal, tab-separated values elsewhere.

    Text of any size is counted in bounded memory.
    """
    if sort not in ("frequency", "text"):
        raise typer.BadParameter("choose frequency or text", param_hint="--sort")
    if "order" not in settings:
        _refuse_order_as_output(output or "", "FILE")
    from seqtool.core.config import from_dict
    from seqtool.core.progress import stage_bars
    from seqtool.core.runtime import available_threads, parse_size
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.listing import list_ngrams
    from seqtool.lm.tables import check_target

    if as_json and output == "-":
        raise ConfigError(
            "--json and a table both write to stdout", hint="give the table a file name"
        )
    check_target(output, inputs or ())
    config = from_dict(NgramConfig, {"order": COUNTED, **settings})
    if top is None:
        top = LISTED if output is None else 0
    with ExitStack() as stack:
        with stage_bars() as on_progress:
            listing = stack.enter_context(
                list_ngrams(
                    inputs or [stdin_or_sample("CORPUS", training="counting")],
                    config,
                    top=top or None,
                    min_count=min_count,
                    sort="text" if sort == "text" else "frequency",
                    filters=filters or (),
                    boundaries=boundaries,
                    field=field,
                    threads=threads or available_threads(),
                    memory=None if memory is None else parse_size(memory),
                    folder=temp or _folder_of(output),
                    on_progress=on_progress,
                )
            )
        if output is not None or not as_json:
            _show_listing(listing, output)
        if as_json:
            _emit_listing(listing)
        else:
            note(f"{listing.num_chosen:,} of {listing.distinct:,} n-grams of order {config.order}")


def _folder_of(output: str | None) -> Path | None:
    """Return the folder of a file that is written, for temporary files; None where it is none."""
    if output is None or output == "-" or (Path(output).exists() and not Path(output).is_file()):
        return None
    return Path(output).parent


def _show_listing(listing: Listing, output: str | None) -> None:
    """Print the n-grams as a table to a terminal, or as TSV, or write them to a file."""
    import numpy as np

    from seqtool.lm.tables import STDOUT, open_table

    names = ("count", "per million", "n-gram")
    rate = 1e6 / max(1, listing.total)
    if output is None and stream().isatty():
        rows = [
            (str(count), f"{count * rate:.1f}", " ".join(words))
            for ngrams, counts in listing.pieces()
            for words, count in zip(ngrams, counts.tolist(), strict=True)
        ]
        show_table("", names, rows)
        return
    with open_table(output or STDOUT) as table:
        # their names and types, also where there is no n-gram
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.float64), np.zeros(0, np.str_))
        table.write(dict(zip(names, nothing, strict=True)))
        for ngrams, counts in listing.pieces():
            columns = (counts, counts * rate, [*map(" ".join, ngrams)])
            table.write(dict(zip(names, columns, strict=True)))


def _emit_listing(listing: Listing) -> None:
    """Print the n-grams as one JSON object, which is never whole in memory."""
    shown = stream()
    head = {"order": listing.order, "distinct": listing.distinct, "total": listing.total}
    shown.write(f'{json_text(head)[:-1]}, "ngrams": [')
    separator = ""
    for ngrams, counts in listing.pieces():
        rows = zip(ngrams, counts.tolist(), strict=True)
        content = [{"ngram": words, "count": count} for words, count in rows]
        shown.write((separator + json_text(content)[1:-1]) if content else "")
        separator = ", " if content else separator
    shown.write("]}\n")
    shown.flush()
