"""How --help is laid out: groups of options, examples, and no word broken.

Usage: seqtool prepare [OPTIONS] [INPUT]...

Turn text into ...

Examples:
seqtool prepare my.txt -o corpora/my

Arguments:
INPUT...            Text: files ...

Options:
--unit word|char|byte|bpe|unigram
What a token is. [default: word]
"""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from seqtool.core import terminal

WIDEST = 100  # longer lines are hard to read
NAMES_WIDTH = 24  # of the names of options; where they are longer, the text begins a line

# group -> the options that stand in it wherever nothing else is said; all others are "Options"
PANELS = {
    "Model": ("--model", "--weights", "--beam"),
    "Input": (
        *("--field", "--column", "--lowercase", "--skip-empty-lines", "--special-tokens"),
        *("--valid", "--test", "--dev", "--split", "--strict", "--skip-invalid", "--raw"),
        *("--rules", "--presegmented", "--pretokenized", "--allow-missing", "--max-line"),
    ),
    "Output": (
        *("--output", "--format", "--force", "--json", "--arpa", "--per-token", "--per-sentence"),
        *(
            "--save-mixture",
            "--tensorboard",
            "--plot",
            "--clear-deps",
            "--trace",
            "--nbest",
            "--scores",
            "--parquet",
        ),
    ),
    "Run": (
        *(
            "--resume",
            "--time-limit",
            "--max-minutes",
            "--list-settings",
            "--seed",
            "--device",
            "--threads",
        ),
        *("--engine", "--memory", "--temp", "--help"),
    ),
}
DEFAULT_PANEL = "Options"
# command -> option of another program -> what it is here; KenLM's lmplz and SRILM's ngram-count
OTHER_NAMES = {
    "ngram train": {
        "--text": "the argument CORPUS",
        "--discount_fallback": "--fallback-discounts",
        "--limit_vocab_file": "--limit-vocab",
        "--skip_symbols": "--special-tokens skip",
        "--vocab_file": "--vocab",
        "-S": "--memory",
        "-prune": "--prune-entropy",
    }
}
_PANEL_OF = {option: panel for panel, options in PANELS.items() for option in options}

Function = TypeVar("Function", bound=Callable[..., None])


def examples(*commands: str) -> Callable[[Function], Function]:
    """Return a decorator that gives a command examples, which its --help shows."""

    def give(function: Function) -> Function:
        function.examples = commands  # type: ignore[attr-defined]
        return function

    return give


def other_name(command: str, option: str) -> str:
    """Return what an unknown option of a command, as another program has it, is here; "" if none.

    Args:
        command: its path, as `seqtool ngram train`.
        option: as it was typed; dashes and underscores in it are the same.
    """
    known = OTHER_NAMES.get(command.partition(" ")[2], {})
    spelt = option[:2] + option[2:].replace("-", "_")
    return known.get(spelt, "")


def panel_of(option: Any) -> str:
    """Return the group of an option: its own, or that of `PANELS`."""
    own = getattr(option, "rich_help_panel", None)
    return own or next((_PANEL_OF[n] for n in option.opts if n in _PANEL_OF), DEFAULT_PANEL)


def by_panel(options: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the options that are shown by their groups: own ones first, then those of PANELS."""
    panels: dict[str, list[Any]] = {}
    for option in options:
        if not option.hidden:
            panels.setdefault(panel_of(option), []).append(option)
    own = [name for name in panels if name not in PANELS]
    return {name: panels[name] for name in (*own, *PANELS) if name in panels}


def option_names(option: Any) -> str:
    """Return how an option is typed: -o, --output DIR; --tied/--untied."""
    names = sorted(option.opts, key=len)
    shown = ", ".join(names)
    if option.secondary_opts:
        shown += "/" + "/".join(option.secondary_opts)
    return shown if option.is_flag else f"{shown} {option.metavar or option.name.upper()}"


def default_of(option: Any) -> str:
    """Return the default that is shown of an option, or nothing."""
    is_shown = option.show_default and not option.is_flag and option.default not in (None, "", ())
    return str(option.default) if is_shown else ""


def argument_name(argument: Any) -> str:
    """Return how an argument is typed: [INPUT]..., MODEL."""
    name = (argument.metavar or argument.name.upper()).strip("[]")
    shown = f"{name}..." if argument.nargs == -1 else name
    return shown if argument.required else f"[{shown}]"


class Helpful:
    """A command, or a group of them, whose --help is laid out here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw it as it is, as it holds no text of data."""
        width = min(WIDEST, shutil.get_terminal_size().columns)
        shown, is_bold = terminal.drawn(), terminal.stream().isatty()
        for line, is_heading in help_lines(self, ctx, width):
            shown.write(f"\x1b[1m{line}\x1b[0m\n" if is_heading and is_bold else f"{line}\n")
        shown.flush()


def help_lines(command: Any, ctx: Any, width: int) -> Iterator[tuple[str, bool]]:
    """Give the lines of a command's help, none wider unless a word is, and whether it is a heading.

    Args:
        command: a command, or a group of them.
        ctx: its context, which knows how it was typed.
        width: columns of the terminal.
    """
    params = command.get_params(ctx)
    arguments = [each for each in params if each.param_type_name == "argument"]
    options = [each for each in params if each.param_type_name == "option"]
    commands = getattr(command, "commands", {})
    rest = ["COMMAND [ARGS]..."] if commands else map(argument_name, arguments)
    yield from _plain(_wrapped(" ".join([f"Usage: {ctx.command_path} [OPTIONS]", *rest]), width))
    yield "", False
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from _plain(_wrapped(paragraph, width))
        yield "", False
    if not commands and command.epilog:
        yield "Examples:", True
        yield from _plain(f"  {line}" for line in command.epilog.splitlines())
        yield "", False
    if arguments:
        yield "Arguments:", True
        yield from _plain(_listed(((argument_name(a), a.help or "") for a in arguments), width))
        yield "", False
    for panel, members in ({DEFAULT_PANEL: options} if commands else by_panel(options)).items():
        yield f"{panel}:", True
        rows = ((option_names(option), _help_of(option)) for option in members)
        yield from _plain(_listed(rows, width))
        yield "", False
    if commands:
        yield "Commands:", True
        rows = ((name, _first_sentence(each.help)) for name, each in commands.items())
        yield from _plain(_listed(rows, width))
        yield "", False
        if command.epilog:
            yield from _plain(_wrapped(command.epilog, width))


def _plain(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    return ((line, False) for line in lines)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        subsequent_indent=indent,
        initial_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Give lines of names with texts beside them, or below where the names are long."""
    indent = " " * (NAMES_WIDTH + 2)
    for names, text in rows:
        lines = _wrapped(text, width, indent) or [""]
        if len(names) > NAMES_WIDTH - 2:
            yield f"  {names}"
        else:
            yield f"  {names:<{NAMES_WIDTH}}{lines.pop(0).lstrip()}".rstrip()
        yield from lines


def _help_of(option: Any) -> str:
    default = default_of(option)
    return f"{option.help or ''} [default: {default}]" if default else option.help or ""


def _first_sentence(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n\n")[0]
