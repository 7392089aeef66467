"""`seqtool ngram classes`: make classes of words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.ngram import READING, FieldOption, InputsArgument
from seqtool.cli.options import (
    JsonOption,
    MemoryOption,
    ThreadsOption,
    emit,
    note,
    offer,
    show_table,
    stdin_or_sample,
    takes_options,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.ngram.exchange import MadeClasses

SHOWN = 10  # classes, and words of each


@takes_options(
    "seqtool.lm.ngram.config:WordsConfig",
    {
        "--vocab": offer("vocab", help="A closed vocabulary, one word a line.", metavar="FILE"),
        "--vocab-size": "vocab_size",
        "--min-count": "min_count",
        **READING,
    },
    panel=None,
    shows_defaults=True,
)
@examples(
    "seqtool ngram classes my.txt --num 200 -o classes.tsv",
    "seqtool ngram train my.txt --classes classes.tsv -o runs/classes",
)
def classes(
    inputs: InputsArgument = None,
    num: Annotated[int, typer.Option(min=1, metavar="N", help="How many classes.")] = 100,
    sweeps: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="How many times each word may move; fewer, where no word moves before.",
        ),
    ] = 20,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write, or - for stdout."),
    ] = "-",
    field: FieldOption = None,
    threads: ThreadsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Put words into classes by the words beside them, for `ngram train --classes`.

    The exchange algorithm (Kneser & Ney 1993; Martin, Liermann & Ney 1998): words go, one after
    another, to the class that makes a class bigram model of the text better, until none moves. The
    file has a word and the number of its class in each line.
    """
    from seqtool.core.config import from_dict
    from seqtool.core.progress import stage_bars
    from seqtool.core.runtime import available_threads, parse_size
    from seqtool.lm.ngram.arpa import check_target
    from seqtool.lm.ngram.classes import write_classes
    from seqtool.lm.ngram.config import WordsConfig
    from seqtool.lm.ngram.exchange import make_classes

    if as_json and output == "-":
        raise ConfigError(
            "the classes and --json would both go to stdout", hint="name a file with -o"
        )
    config = from_dict(WordsConfig, settings)
    check_target(output, [*(inputs or ()), *config.files])
    with stage_bars() as on_progress:
        made = make_classes(
            inputs or [stdin_or_sample("CORPUS", training="making classes of")],
            config,
            num=num,
            max_sweeps=sweeps,
            field=field,
            threads=threads or available_threads(),
            memory=None if memory is None else parse_size(memory),
            on_progress=on_progress,
        )
    write_classes(output, made.classes)
    if as_json:
        return emit(
            {
                "classes": output,
                "num": len(made.classes),
                "words": sum(map(len, made.classes)),
                "perplexities": made.perplexities,
                "moved": made.num_moved,
            }
        )
    _show(made)
    if output != "-":
        note(f"next: seqtool ngram train CORPUS --classes {shlex.quote(output)}")
        echo(output)


def _show(made: MadeClasses) -> None:
    """Show the largest classes, and how good they are, on stderr."""
    rows = [
        [number, f"{len(words):,}", f"{share:.1%}", _some(words)]
        for number, (words, share) in enumerate(zip(made.classes, made.shares, strict=True), 1)
    ]
    show_table("", ["class", "words", "share", "most frequent"], rows[:SHOWN], to_stderr=True)
    num_sweeps, (first, *_, last) = len(made.num_moved), made.perplexities
    rest = f"; {made.num_moved[-1]:,} words moved in the last one" if made.num_moved[-1] else ""
    note(
        f"{sum(map(len, made.classes)):,} words in {len(made.classes):,} classes: perplexity of "
        f"the text by class bigrams {first:.2f} -> {last:.2f} in {num_sweeps} sweeps{rest}"
    )


def _some(words: list[str]) -> str:
    return " ".join(words[:SHOWN]) + (" ..." if len(words) > SHOWN else "")
