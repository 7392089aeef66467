"""`seqtool help`: the manual in the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import show_table

MANUAL = Path(__file__).resolve().parents[1] / "manual"
REFERENCE = "reference"

# page of the manual -> what it is about, in the order of `seqtool help`
TOPICS = {
    "prepare-text": "turn text into a prepared corpus; check a treebank",
    "ngrams": "n-gram models: smoothing, pruning, ARPA files for a speech recogniser",
    "neural-language-models": "train RNN, LSTM, GRU, RHN and window models; resume, reproduce",
    "mixing-and-adapting": "interpolate models; cache and dynamic evaluation",
    "parsing": "parse your own language: treebank, raw text, segmenter, tagger, parser",
    "evaluate": "perplexity, surprisal, parser scores, comparisons, learning curves",
    "formats": "files that are read and written: text, corpora, models, ARPA, CoNLL-U",
    "python": "the same from Python",
    "figures": "measured results: table, command, date, machine",
    "experiments": "what was tried without gain",
    "troubleshooting": "messages, memory, held-out data, interrupted runs",
    "development": "the source tree, checks and tests",
    REFERENCE: "every command with its options",
    "settings": "every setting with its default, presets and recipes",
}
WIDTH = 100  # longer lines are hard to read


def show_manual(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A page of the manual, or a command such as `ngram train`; without it, the pages "
            "are listed.",
        ),
    ] = None,
) -> None:
    """Show the manual: its list of pages, one page, or the reference of one command.

    A page that is longer than the screen is shown in a pager ($PAGER). Where the output is no
    terminal, it is Markdown.
    """
    if not topic:
        show_table("", ["topic", "about"], list(TOPICS.items()))
        typer.echo(
            "\nRead a page with `seqtool help TOPIC`, as in `seqtool help parsing`.\n"
            "The options of a command: `seqtool help ngram train` or `seqtool ngram train --help`."
        )
        return
    _show(_find(" ".join(topic).lower()))


def _find(topic: str) -> str:
    """Return the Markdown of a topic or of a command's reference.

    Raises:
        ConfigError: there is neither; the hint names near ones.
    """
    if topic in TOPICS:
        return _page(topic)
    sections = _commands()
    found = [text for name, text in sections.items() if f"{name} ".startswith(f"{topic} ")]
    if found:
        return "\n".join(found)
    from seqtool.core.errors import ConfigError
    from seqtool.core.registry import did_you_mean

    raise ConfigError(
        f"the manual has no page or command {topic!r}",
        hint=did_you_mean(topic, {*TOPICS, *sections}, otherwise="`seqtool help` lists the pages"),
    )


def _page(topic: str) -> str:
    return (MANUAL / f"{topic}.md").read_text(encoding="utf-8")


def _commands() -> dict[str, str]:
    """Return the reference's section of each command, by the command's name."""
    parts = re.split(r"^(?=## )", _page(REFERENCE), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## seqtool "): part for part in parts}


def _show(text: str) -> None:
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    page = Markdown(for_terminal(text), hyperlinks=False)
    width = min(console.width, WIDTH)
    if len(console.render_lines(page, console.options.update(width=width))) < console.height:
        console.print(page, width=width)
        return
    os.environ.setdefault("LESS", "FRX")  # as git sets it: R shows colours
    pager = os.environ.get("MANPAGER") or os.environ.get("PAGER") or shutil.which("less") or ""
    with console.pager(styles="less" in pager):
        console.print(page, width=width)


def for_terminal(text: str) -> str:
    """Return a page without what a terminal cannot show: comments, pictures, links to pages."""
    text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"(picture: \1)", text)
    return re.sub(r"\[([^\]]+)\]\(([\w-]+)\.md(?:#[^)]*)?\)", r"\1 (`seqtool help \2`)", text)
