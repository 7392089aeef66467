"""`seqtool analyse`: what models do, and one page of all that fits the models at hand.

A command of the group opens the models, calls the `analyse` of its module, and shows the report.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

import typer

from seqtool.cli.models import (
    default_model,
    names_of,
    note_beam,
    note_unknown,
    open_model,
    open_tagger,
)
from seqtool.cli.options import (
    JsonOption,
    SeedOption,
    ThreadsOption,
    emit,
    is_stdin_given,
    note,
    stdin_or_sample,
    takes_options,
)
from seqtool.cli.reports import (
    ShownOptions,
    check_folders,
    refuse_unnamed,
    show,
    to_json,
    write_page,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError
from seqtool.core.terminal import echo

# analysis -> its module
ANALYSES = {
    "gradients": "seqtool.analysis.gradients",
    "spectrum": "seqtool.analysis.spectra",
    "gates": "seqtool.analysis.gates",
    "dynamics": "seqtool.analysis.dynamics",
    "cells": "seqtool.analysis.cells",
    "context": "seqtool.analysis.context",
    "surprisal": "seqtool.analysis.surprisal",
    "sparsity": "seqtool.analysis.sparsity",
    "errors": "seqtool.analysis.errors",
    "embeddings": "seqtool.analysis.embeddings",
}
SEED = 1

ModelOption = Annotated[
    list[Path] | None,
    typer.Option(
        "-m",
        "--model",
        metavar="MODEL",
        help="A model (a language model may be an ARPA file); repeat it to see several side by "
        "side. The default output of the training command if not given.",
    ),
]
TextArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="TEXT",
        help="Text, one sentence per line (also packed), or a prepared corpus. If not given: "
        "stdin where that is a pipe or a file, else the shipped sample's English test text.",
    ),
]
SplitOption = Annotated[
    str, typer.Option("--split", metavar="NAME", help="Split of a prepared corpus.")
]
InitialOption = Annotated[
    bool,
    typer.Option(
        "--initial", help="Show each network as it was before its training, too, drawn by --seed."
    ),
]
TaggerOption = Annotated[
    Path | None,
    typer.Option(metavar="MODEL", help="A tagger, to show each word class by itself."),
]
SentencesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sentence", "-s", metavar="TEXT", help="A sentence to look at; repeat it for several."
    ),
]


def tokens_option(default: str) -> Any:
    """Return the option of how much of a text is read; `default` is what the analysis has."""
    return typer.Option(
        "--tokens", min=1, metavar="N", help=f"Read no more of the text; {default} if not given."
    )


def run_analysis(
    name: str,
    models: Sequence[tuple[str, Any]],
    text: str | Path | None,
    shown: ShownOptions,
    **options: Any,
) -> None:
    """Run an analysis with the options that are given, and show its report."""
    given = {option: value for option, value in options.items() if value is not None}
    with kept_text(text) as kept:
        report = import_module(ANALYSES[name]).analyse(models, kept, **given)
    show(report, shown)


@contextmanager
def kept_text(text: str | Path | None) -> Iterator[str | Path | None]:
    """Give a file of what is on stdin, which each model reads anew; any other text as it is."""
    from seqtool.core.reading import STDIN

    if text is None or str(text) != STDIN:
        yield text
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


def text_beside(
    text: Path | None, sentences: Sequence[str] | None, *others: object
) -> str | Path | None:
    """Return the text of an analysis: what is named, stdin, or the sample.

    None where sentences are asked for, and none of the `others` that need a text.
    """
    if text is None and sentences and not is_stdin_given() and not any(others):
        return None
    return text or stdin_or_sample("TEXT")


def open_language_models(
    paths: Sequence[Path] | None, threads: int | None, *kinds: str
) -> list[tuple[str, Any]]:
    """Open the language models of -m, or the default one of the first of these kinds.

    Raises:
        ConfigError: one is given twice.
        ModelError: there is none, it is damaged, or it is no language model.
    """
    from seqtool.lm.mixture.model import open_language_model

    chosen = list(paths or [default_model(*(kinds or ("lm", "ngram")))])
    return [
        (name, open_language_model(path, threads=threads))
        for name, path in zip(names_of(chosen), chosen, strict=True)
    ]


def _with_initial(
    models: list[tuple[str, Any]], wanted: bool, seed: int | None
) -> list[tuple[str, Any]]:
    """Return models with each network as it was before training after it, if that is wanted."""
    if not wanted:
        return models
    from seqtool.analysis.recurrence import initial_model
    from seqtool.lm.neural.model import NeuralLanguageModel

    found = []
    for name, model in models:
        found.append((name, model))
        if isinstance(model, NeuralLanguageModel):
            fresh = initial_model(model, SEED if seed is None else seed)
            found.append((f"{name} (initial)", fresh))
    return found


N = TypeVar("N", int, float)


def numbers_of(text: str, kind: type[N], example: str) -> list[N]:
    """Return the numbers of a list as it is typed, with commas between them.

    Raises:
        ConfigError: it is none.
    """
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        noun = "whole numbers" if kind is int else "numbers"
        raise ConfigError(
            f"{text!r} is no list of {noun}", hint=f"write it as {example}"
        ) from error


@takes_options()
@examples(
    "seqtool analyse context test.txt -m runs/lm -m runs/ngram",
)
def context(
    text: TextArgument = None,
    model: ModelOption = None,
    sentence: SentencesOption = None,
    lengths: Annotated[
        str | None,
        typer.Option(metavar="K,K...", help="Tokens of context to try; 1 to 50 if not given."),
    ] = None,
    targets: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens whose surprisal is taken; 300 by default."),
    ] = None,
    initial: InitialOption = False,
    tokens: Annotated[int | None, tokens_option("20,000")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show how far back language models look: their surprisal when the context is cut.

    With --sentence, the surprisal of its last word too: two sentences that differ far before it
    show whether a model still knows what was said there. With no TEXT beside it, that alone.
    """
    shown.check()
    run_analysis(
        "context",
        _with_initial(open_language_models(model, threads), initial, seed),
        text_beside(text, sentence, lengths, targets, tokens),
        shown,
        seed=seed,
        split=split,
        num_tokens=tokens,
        num_targets=targets,
        lengths=None if lengths is None else numbers_of(lengths, int, "1,2,5"),
        sentences=sentence,
    )


@takes_options()
@examples(
    "seqtool analyse surprisal test.txt -m runs/lm -m runs/ngram --html page.html",
)
def surprisal(
    text: TextArgument = None,
    model: ModelOption = None,
    sentence: SentencesOption = None,
    tagger: TaggerOption = None,
    initial: InitialOption = False,
    tokens: Annotated[int | None, tokens_option("20,000")] = None,
    split: SplitOption = "valid",
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show surprisal word by word, and where one language model is better than another.

    By how often a word was counted in training, by the distance to where it last was, and with
    --tagger by word class; the words by which models differ most; and sentences word by word.
    With --sentence and no TEXT, these sentences alone.
    """
    shown.check()
    run_analysis(
        "surprisal",
        _with_initial(open_language_models(model, threads), initial, seed),
        text_beside(text, sentence, tagger, tokens),
        shown,
        split=split,
        num_tokens=tokens,
        sentences=sentence,
        tagger=open_tagger(tagger),
    )


@takes_options()
@examples(
    "seqtool analyse sparsity test.txt -m runs/ngram",
)
def sparsity(
    text: TextArgument = None,
    model: ModelOption = None,
    tokens: Annotated[int | None, tokens_option("1,000,000")] = None,
    split: SplitOption = "valid",
    *,
    shown: ShownOptions,
) -> None:
    """Show what n-gram models hold by order, and how much of a new text they do not hold."""
    shown.check()
    models = open_language_models(model, None, "ngram")
    run_analysis(
        "sparsity",
        models,
        text or stdin_or_sample("TEXT"),
        shown,
        split=split,
        num_tokens=tokens,
        statistics=_statistics([name for name, _ in models]),
    )


def _statistics(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the headers of n-gram models tell of their counts; an ARPA file tells nothing."""
    from seqtool.core import checkpoint

    directories = [name for name in names if Path(name).is_dir()]
    return {name: dict(checkpoint.read_header(name).statistics) for name in directories}


@takes_options()
@examples(
    "seqtool analyse errors dev.conllu -m runs/parser -m runs/other",
)
def errors(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="GOLD",
            help="Treebank: a CoNLL-U file (also packed), a directory, - for stdin. If not "
            "given: stdin where that is a pipe or a file, else the shipped sample's English test "
            "treebank.",
        ),
    ] = None,
    model: ModelOption = None,
    beam: Annotated[
        int, typer.Option(min=1, metavar="N", help="Hypotheses that a parser follows at once.")
    ] = 1,
    *,
    shown: ShownOptions,
) -> None:
    """Show where parsers err: by relation, length, depth, sentence length, and what they confuse.

    Two parsers are compared word by word, too.
    """
    from seqtool.treebank.conllu import read_conllu

    shown.check()
    paths = list(model or [default_model("parser")])
    models = [
        (name, open_model(path, "parser"))
        for name, path in zip(names_of(paths), paths, strict=True)
    ]
    for path, (_, parser) in zip(paths, models, strict=True):
        note_beam(parser, beam, [path])
    with kept_text(text or stdin_or_sample("GOLD", "trees")) as kept:
        run_analysis("errors", models, kept, shown, beam=beam)
        sentences = list(read_conllu(str(kept), skip_option=""))
        for path, (_, parser) in zip(paths, models, strict=True):
            note_unknown(parser, sentences, path)


@takes_options()
@examples(
    "seqtool analyse embeddings -m runs/lm --word dog -o map.svg",
)
def embeddings(
    model: ModelOption = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A table of vectors, such as words, form, upos, labels; the first if not given.",
        ),
    ] = "",
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--word", "-w", metavar="NAME", help="Whose nearest are shown; repeat it for several."
        ),
    ] = None,
    initial: InitialOption = False,
    nearest: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many of the nearest; 6 by default.")
    ] = None,
    names: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Names on the map; 60 by default.")
    ] = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    *,
    shown: ShownOptions,
) -> None:
    """Show which words, tags or labels have vectors that are alike, and a map of them.

    Any model with vectors will do: a neural language model, a tagger, a parser.
    """
    shown.check()
    paths = list(model or [default_model("lm", "parser", "tagger")])
    models = [
        (name, _open(path, threads)) for name, path in zip(names_of(paths), paths, strict=True)
    ]
    run_analysis(
        "embeddings",
        _with_initial(models, initial, seed),
        "",
        shown,
        seed=seed,
        table=table,
        words=word,
        num_nearest=nearest,
        num_mapped=names,
    )


def _open(path: Path, threads: int | None) -> Any:
    """Open a model of any kind; a network computes with as many threads."""
    from seqtool.core import checkpoint

    if not path.is_file() and checkpoint.read_header(path).kind in ("neural-lm", "mixture"):
        from seqtool.lm.mixture.model import open_language_model

        return open_language_model(path, threads=threads)
    return checkpoint.load(path)


@takes_options()
@examples(
    "seqtool analyse report runs -o report.html",
)
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of models, or of folders of models.")
    ] = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page; a new DIR/report.html if not given."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="TEXT",
            help="What language models are shown on; the sample's test text of their language if "
            "not given.",
        ),
    ] = None,
    treebank: Annotated[
        Path | None,
        typer.Option(metavar="GOLD", help="What parsers are shown on; likewise."),
    ] = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one page about the models of a directory: what was trained, how well, what it does.

    It holds the learning curves and every analysis that fits the models. `seqtool analyse` alone
    does this with those in runs/.
    """
    from seqtool.analysis.overview import overview

    path = output or directory / "report.html"
    check_folders(output)
    if output is None:
        refuse_unnamed(path)
    reports = list(
        overview(
            directory,
            text=text,
            treebank=treebank,
            seed=SEED if seed is None else seed,
            threads=threads,
            on_analysis=note,
        )
    )
    write_page(path, f"What the models of {directory} do", reports)
    if as_json:
        return emit({"page": path, "reports": list(map(to_json, reports))})
    echo(path)
