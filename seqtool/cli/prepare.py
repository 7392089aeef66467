"""`seqtool fetch`: a data set to text files; `seqtool prepare`: text to a prepared corpus."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
    SeedOption,
    StrictOption,
    emit,
    is_typed,
    note,
    offer,
    stdin_or_sample,
    takes_options,
)
from seqtool.cli.spark import SessionOptions, TempOption
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError, counted, did_you_mean
from seqtool.core.terminal import echo, stream

if TYPE_CHECKING:
    from seqtool.text.prepared import PrepareConfig, PreparedCorpus

ENGINES = ("memory", "spark")  # what counts words
DEFAULT_OUTPUT = "runs/corpus"
SHOWN_BROKEN = 10


@takes_options(
    "seqtool.text.preparation:PrepareConfig",
    {
        "--unit": "unit",
        "--vocab-size": offer(
            "vocab_size",
            help="Size of the vocabulary, <unk> and </s> included. Words and characters: all if "
            "not given; bpe and unigram: 8000, or fewer where the text has no more.",
        ),
        "--min-count": "min_count",
        "--vocab": offer("vocab", help="The vocabulary, one word a line.", metavar="FILE"),
        "--field": offer("field", help=FIELD_HELP),
        "--column": offer(
            "column",
            help="Read treebanks, and take this column for the text: of form the tokens as they "
            "are written, of the others those of words.",
        ),
        "--lowercase": "lowercase",
        "--skip-empty-lines": "skip_empty_lines",
        "--special-tokens": "special_tokens",
        "--character-coverage": offer("character_coverage", metavar="SHARE"),
        "--byte-fallback": "byte_fallback",
    },
    panel=None,
    shows_defaults=True,
)
@examples(
    "seqtool prepare my.txt -o corpora/my",
    "seqtool prepare texts/ --unit bpe --vocab-size 8000 -o corpora/bpe",
    "seqtool prepare train.conllu --valid dev.conllu --column form -o corpora/ud",
    "seqtool prepare crawl/ --engine spark --shards 4 -o corpora/crawl",
)
def prepare(
    context: typer.Context,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Text: files (packed, .jsonl, .parquet too), directories, or - for stdin. A "
            "directory with train.*, valid.* (or dev.*) and test.* files gives the splits. "
            "Treebanks (.conllu) are checked and summarised, or with --column read as text. "
            f"{UNNAMED} the shipped English sample.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Directory to write to. With --column, - writes the text itself to stdout.",
        ),
    ] = DEFAULT_OUTPUT,
    # no paths: of a URL, as --engine spark takes it, one would lose a slash
    valid: Annotated[str | None, typer.Option(metavar="FILE", help="The validation text.")] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="The test text.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENTAGES",
            help="Shares of train, valid and test to draw by line; 90,5,5 where none is given.",
        ),
    ] = None,
    shards: Annotated[
        int,
        typer.Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Cut the training ids into N files, so that each of N machines that train on them "
            "needs only its own.",
        ),
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            metavar="|".join(ENGINES),
            help="What counts words: one process, in memory, or Apache Spark.",
        ),
    ] = ENGINES[0],
    memory: MemoryOption = None,
    temp: TempOption = None,
    *,
    settings: dict[str, Any],
    spark: SessionOptions,
    seed: SeedOption = None,
    force: ForceOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn text into a prepared corpus: a vocabulary, and ids that map into memory.

    Memory does not grow with the text, only with its different words. The corpus's path is printed.

    Of a treebank nothing is written without --column: its sentences are checked, and what it holds
    is printed.
    """
    column = settings.get("column")
    if inputs and column is None and _are_treebanks(inputs):
        _refuse_other_options(
            context,
            {"inputs", "as_json", "strict", "max_line"},
            "means nothing for a treebank that is only checked",
            ", or take a column of it with --column form",
        )
        check_treebanks(inputs, as_json, strict=strict)
        return
    if strict:
        raise ConfigError("--strict is for treebanks", hint="leave --strict out")
    from seqtool.core.config import from_dict
    from seqtool.core.progress import progress_bar
    from seqtool.core.runtime import parse_size
    from seqtool.text import prepared
    from seqtool.text.preparation import parse_shares

    if split is not None:
        settings["split"] = parse_shares(split)
    config = from_dict(prepared.PrepareConfig, {**settings, "seed": seed or 0})
    if engine not in ENGINES:
        raise ConfigError(f"no engine is called {engine!r}", hint=did_you_mean(engine, ENGINES))
    if temp is not None and engine != "spark":
        raise ConfigError("--temp is for --engine spark", hint="leave --temp out")
    spark.check(is_used=engine == "spark")
    sources: list[str | Path] = [*(inputs or ())]
    if engine == "spark":
        spark.refuse(memory=memory)
        if not sources:
            what = "--engine spark reads no stdin and no sample"
            raise ConfigError(what, hint="name INPUT")
    if not sources:
        found = stdin_or_sample("INPUT", "trees" if column else "text", training="using")
        sources = [found]
        if found != "-":
            from seqtool.text.datasets import sample_text, sample_treebank

            find = sample_treebank if column else sample_text
            sources = [find("en", "train")]
            if config.split is None and output != "-":
                valid, test = valid or str(find("en", "valid")), test or str(find("en", "test"))
    if output == "-":
        return _write_text(context, sources, config)
    start = time.perf_counter()
    with progress_bar("prepare", is_bytes=engine != "spark") as on_progress, ExitStack() as stack:
        options: dict[str, Any] = {"valid": valid, "test": test, "shards": shards}
        options |= {"force": force, "on_progress": on_progress}
        if engine == "spark":
            from seqtool.spark.preparation import prepare as prepare_on_spark

            session = stack.enter_context(spark.session())
            corpus = prepare_on_spark(session, sources, output, config, temp=temp, **options)
        else:
            corpus = prepared.prepare(
                sources,
                output,
                config,
                memory=None if memory is None else parse_size(memory),
                **options,
            )
    seconds = time.perf_counter() - start
    if as_json:
        return emit({"corpus": str(corpus.path), **corpus.info, "seconds": seconds})
    _summarise(corpus, seconds)
    echo(corpus.path)


def _write_text(
    context: typer.Context, sources: Sequence[str | Path], config: PrepareConfig
) -> None:
    """Write a column of treebanks to stdout, a sentence a line."""
    if config.column is None:
        raise ConfigError("a corpus is a directory", hint="name it with -o, or add --column form")
    _refuse_other_options(
        context,
        {"inputs", "output", "column", "lowercase", "max_line"},
        "means nothing for a text that is written to stdout",
    )
    from seqtool.core.reading import read_blocks

    shown = stream()
    shown.buffer.writelines(read_blocks(sources, column=config.column, lowercase=config.lowercase))
    shown.flush()


def _summarise(corpus: PreparedCorpus, seconds: float) -> None:
    """Say on stderr what the corpus holds."""
    info = corpus.info
    note(f"unit {info['unit']}, vocabulary of {info['vocabulary_size']:,} symbols{_sample(info)}")
    columns = ("sentences", "tokens", "unknown")
    for name, part in info["splits"].items():
        amounts = "  ".join(f"{part[column]:>12,} {column}" for column in columns)
        note(f"{name:<5}{amounts} ({part['unknown'] / part['tokens']:.2%})")
    if info["shares"] is not None and info["config"]["split"] is None:
        note(f"no splits were given: {describe_draw(info)}")
    num_bytes = sum(part["bytes"] for part in info["splits"].values())
    rate = f", {num_bytes / 1e6 / seconds:.0f} MB/s" if num_bytes > 1e7 else ""
    note(f"{num_bytes / 1e6:.1f} MB in {seconds:.1f} s{rate}")


def describe_draw(info: Mapping[str, Any]) -> str:
    """Say how the lines of a text were drawn for the splits, from its `corpus.json`."""
    shares = zip(info["shares"], ("train", "valid", "test"), strict=True)
    drawn = ", ".join(f"{share:g}% {name}" for share, name in shares)
    return f"each line was drawn for {drawn}, seed {info['config']['seed']}"


def _sample(info: dict[str, Any]) -> str:
    """Say how much of the text a subword vocabulary was learnt from."""
    learnt = info["learnt_from"]
    if learnt is None:
        return ""
    if learnt["lines"] == learnt["of"]:
        return ", learnt from all training lines"
    return f", learnt from {learnt['lines'] / learnt['of']:.1%} of the training lines, drawn"


def _are_treebanks(inputs: list[str]) -> bool:
    """Whether the inputs are treebanks, all of them, by their names."""
    from seqtool.core.reading import comes_with_treebanks, holds_treebanks, is_text

    def holds_texts(folder: Path) -> bool:
        texts = filter(is_text, folder.iterdir()) if folder.is_dir() else ()
        return not all(map(comes_with_treebanks, texts))

    treebanks = [name for name in inputs if holds_treebanks(name) and not holds_texts(Path(name))]
    if treebanks and len(treebanks) < len(inputs):
        text = next(name for name in inputs if name not in treebanks)
        raise DataError(
            f"is a treebank, but {text} is not", hint="prepare them apart", path=treebanks[0]
        )
    return bool(treebanks)


def _refuse_other_options(
    context: typer.Context, allowed: set[str], what: str, advice: str = ""
) -> None:
    for parameter in context.command.params:
        name = parameter.name or ""
        if is_typed(context, name) and name not in allowed:
            option = max(parameter.opts, key=len)
            raise ConfigError(f"{option} {what}", hint=f"leave {option} out{advice}")


def check_treebanks(inputs: list[str], as_json: bool, *, strict: bool = False) -> None:
    """Print what treebanks hold, and list broken sentences and doubtful lines, the first of them.

    Broken sentences are an error, and if `strict`, doubtful lines too.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.treebank.summary import describe_treebank, summary_rows

    start = time.perf_counter()
    with progress_bar("check", is_bytes=True) as on_progress:
        summary = describe_treebank(inputs, on_progress=on_progress)
    seconds = time.perf_counter() - start
    if as_json:
        emit({**vars(summary), "seconds": seconds})
    else:
        rows = summary_rows(summary)
        width = max(len(name) for name, _ in rows)
        for name, text in rows:
            echo(f"{name:<{width}}  {text}")
    if summary.broken:
        for broken in summary.broken[:SHOWN_BROKEN]:
            note(f"broken: {broken}")
        total = summary.sentences + len(summary.broken)
        raise DataError(
            f"{len(summary.broken):,} of {counted(total, 'sentence')} cannot be used",
            hint="mend them, or leave them out with --skip-invalid where a treebank is read",
        )
    for doubtful in summary.doubtful[:SHOWN_BROKEN]:
        note(f"doubtful: {doubtful}")
    if strict and summary.doubtful:
        first = summary.doubtful[0]
        raise DataError(
            first.message, hint="mend it, or leave --strict out", path=first.path, line=first.line
        )


@examples(
    "seqtool fetch --list",
    "seqtool fetch wikitext-2 -o corpora/wikitext-2/text",
)
def fetch(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The data set: wikitext-2 or ptb; without it, all are listed."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="The folder to make; NAME by default."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Take the texts from this folder or zip file, no network.",
        ),
    ] = None,
    force: ForceOption = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the data sets.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a public data set, checked by its SHA-256, to a folder of train, valid and test text.

    The folder's path is printed.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.text import datasets

    if list_all or name is None:
        known = datasets.DATASETS.items()
        if as_json:
            return emit({"datasets": [{"name": each, **vars(data)} for each, data in known]})
        for each, data in known:
            echo(f"{each:<12} {data.description} ({data.size / 1e6:.1f} MB, {data.licence})")
        return
    with progress_bar(f"fetching {name}", is_bytes=True) as on_progress:
        folder = datasets.fetch(
            name,
            Path(name) if output is None else output,
            source=source,
            force=force,
            on_progress=on_progress,
            on_message=note,
        )
    description = datasets.describe(folder)
    if as_json:
        return emit({"folder": str(folder), **description})
    for split, entry in description["splits"].items():
        remark = "" if entry["as_published"] else ", not the published file byte for byte"
        note(f"{split}: {entry['file']}, {entry['bytes']:,} bytes{remark}")
    if missing := datasets.DATASETS[name].splits.keys() - description["splits"]:
        note(f"not in the source: {', '.join(sorted(missing))}")
    note(f"licence: {description['licence']}")
    echo(str(folder))
