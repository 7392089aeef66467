"""How a command is typed, and what Typer's help of it shows: groups of options, and examples."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

WIDEST = 100  # longer lines are hard to read
COMPLETION = "_SEQTOOL_COMPLETE"  # set by a shell that asks how a command may be completed

# click's class of that name: Typer has a copy of click of its own, and no public name for this one
UsageError: type[Any] = typer.BadParameter.__bases__[0]

# the last groups of options in --help, and what stands in them where no `rich_help_panel` is given
PANELS = {
    "Model": "--model --weights --beam",
    "Input": "--field --column --lowercase --skip-empty-lines --special-tokens --valid --test "
    "--dev --split --strict --skip-invalid --raw --rules --presegmented --pretokenized "
    "--allow-missing --max-line",
    "Output": "--output --format --force --json --arpa --per-token --per-sentence --save-mixture "
    "--tensorboard --plot --clear-deps --trace --nbest --scores --parquet",
    "Run": "--resume --time-limit --max-minutes --list-settings --seed --device --threads --engine "
    "--memory --temp --jobs --help",
    "Adaptation": "",
    "Engine": "",
    "Spark": "",
}
PANEL_OF = {option: panel for panel, options in PANELS.items() for option in options.split()}

# options of several numbers, which may be apart by spaces or by commas
NUMBER_LISTS = ("--prune", "--fallback-discounts", "--weights")
LONGEST_METAVAR = 20  # choices that are longer stand in the help text, which Rich can fold
MAY_BE_EMPTY = ("-p", "--prompt")  # all others name something
SPELLINGS = {"--optimizer": "--optimiser"}  # both names would not fit into a line of --help

Function = TypeVar("Function", bound=Callable[..., None])


def examples(*commands: str) -> Callable[[Function], Function]:
    """Return a decorator that gives a command examples, which its --help shows."""

    def give(function: Function) -> Function:
        function.examples = commands  # type: ignore[attr-defined]
        return function

    return give


def join_numbers(args: Sequence[str]) -> list[str]:
    """Return arguments with one spelling, the numbers after an option of `NUMBER_LISTS` in one."""
    result: list[str] = []
    for i, arg in enumerate(args):
        if arg == "--":
            return [*result, *args[i:]]
        is_number = re.fullmatch(r"\d+(\.\d*)?|\.\d+", arg) is not None
        if is_number and len(result) > 1 and result[-2] in NUMBER_LISTS:
            result[-1] += f",{arg}"
        else:
            option, equals, value = arg.partition("=")
            result.append(SPELLINGS.get(option, option) + equals + value)
    return result


def _prepare(shown: Iterable[Any]) -> None:
    """Let Rich draw help texts as they are: each paragraph in one piece, and without markup."""
    for each in shown:
        if len(metavar := getattr(each, "metavar", None) or "") > LONGEST_METAVAR:
            each.help, each.metavar = f"{each.help} One of {metavar.replace('|', ', ')}.", "NAME"
        paragraphs = inspect.cleandoc(each.help or "").split("\n\n")
        each.help = escape("\n\n".join(" ".join(text.split()) for text in paragraphs))
        if getattr(each, "is_flag", True):  # of an argument or a flag, the type says nothing
            each.display_type_rich = lambda ctx: None


class Group(TyperGroup):
    """A group of commands, or all of them, that leaves every error to `cli.app.main`."""

    def main(self, args: Any = None, prog_name: str | None = None, *_: Any, **__: Any) -> None:
        """Run the command that was typed, or tell the shell how it may be completed."""
        if COMPLETION in os.environ:
            super().main(args, prog_name)
        with self.make_context(prog_name, list(args)) as context:
            self.invoke(context)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw the help."""
        _prepare([self, *self.get_params(ctx), *self.commands.values()])
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """A command whose options stand in groups, those of `PANELS` last."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters in the order of --help, each with its group."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            named = (PANEL_OF[name] for name in param.opts if name in PANEL_OF)
            param.rich_help_panel = param.rich_help_panel or next(named, None)
        rank = {panel: number for number, panel in enumerate(PANELS)}
        return sorted(params, key=lambda param: rank.get(param.rich_help_panel, -1))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the numbers after an option of several; refuse names that are empty.

        A name as from "$UNSET" would be that of the current directory.
        """
        for before, arg in pairwise(("", *args)):
            if arg.startswith("--") and arg.endswith("="):
                before, arg = arg[:-1], ""
            if arg == "" and before not in MAY_BE_EMPTY:
                raise UsageError(f"the name after {before or 'the command'} is empty", ctx)
        try:
            return super().parse_args(ctx, join_numbers(args))
        except UsageError as error:
            error.ctx = error.ctx or ctx  # of an option without its value, the parser says nothing
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Draw the help."""
        _prepare([self, *self.get_params(ctx)])
        super().format_help(ctx, formatter)
