"""The `seqtool` command: a table of commands, and how errors reach the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from seqtool.cli.options import Command, WithMaxLine, note
from seqtool.core import runtime
from seqtool.core.errors import Interrupted, SeqtoolError, from_os_error
from seqtool.core.version import __version__

COMMANDS = {
    "prepare": "seqtool.cli.prepare:prepare",
    "train-lm": "seqtool.cli.train_lm:train_lm",
    "ngram train": "seqtool.cli.ngram:train",
    "ngram export": "seqtool.cli.ngram:export",
    "ngram import": "seqtool.cli.ngram:import_",
    "ngram counts": "seqtool.cli.ngram:counts",
    "eval-ppl": "seqtool.cli.eval_ppl:eval_ppl",
    "generate": "seqtool.cli.generate:generate",
    "train-segmenter": "seqtool.cli.training:train_segmenter",
    "segment": "seqtool.cli.annotate:segment",
    "train-tagger": "seqtool.cli.training:train_tagger",
    "tag": "seqtool.cli.annotate:tag",
    "train-parser": "seqtool.cli.training:train_parser",
    "parse": "seqtool.cli.annotate:parse",
    "eval-parser": "seqtool.cli.eval_parser:eval_parser",
    "inspect": "seqtool.cli.inspect:inspect",
    "fetch": "seqtool.cli.prepare:fetch",
    "demo": "seqtool.cli.demo:demo",
    "help": "seqtool.cli.help:show_manual",
}

GROUPS = {"ngram": "Estimate n-gram models, turn them to and from ARPA, count n-grams."}

READ_NO_TEXT = ("generate", "ngram export", "fetch", "demo", "help")

# what torchrun may start several times at once
IN_SEVERAL_PROCESSES = ("train-lm",)

EPILOG = (
    "Start with `seqtool demo`. `seqtool help` shows the manual. Every command has its own --help."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqtool {__version__}")
        raise typer.Exit


def _seqtool(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train, measure and use language models and dependency parsers."""
    if context.invoked_subcommand not in (None, *IN_SEVERAL_PROCESSES):
        runtime.refuse_several(str(context.invoked_subcommand))


def load_commands() -> dict[str, Callable[..., None]]:
    """Return the function of every command, by its name."""
    return {name: load_command(name) for name in COMMANDS}


def load_command(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    module, _, function = COMMANDS[name].partition(":")
    command: Callable[..., None] = getattr(import_module(module), function)
    return command


def build_app(args: Sequence[str] | None = None) -> typer.Typer:
    """Return the Typer application with every command of `COMMANDS`.

    The first word of a name of two is that of a group.

    Args:
        args: what was typed. The command that it names is built alone, without the modules of the
            others; where it names none, the others have help texts, but no options.
    """
    app = typer.Typer(
        name="seqtool",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(_seqtool)
    groups = {"": app}
    named = [" ".join(args[:size]) for size in (1, 2)] if args is not None else []
    used = set(named) & COMMANDS.keys()
    for name in COMMANDS:
        if args is None or name in used:
            function = load_command(name)
            function = function if name in READ_NO_TEXT else WithMaxLine(function)
        else:
            function = _stand_in("" if used else load_command(name).__doc__)
        group, _, last = name.rpartition(" ")
        if group and group not in groups:
            groups[group] = typer.Typer(help=GROUPS[group], no_args_is_help=True)
            app.add_typer(groups[group], name=group)
        groups[group].command(last, cls=Command)(function)
    return app


def _stand_in(help_text: str | None) -> Callable[[], None]:
    """Return a command that is listed, and not run: options take their time to build."""

    def command() -> None:
        raise AssertionError("not the command that was typed")

    command.__doc__ = help_text
    return command


def _report(message: str, hint: str = "", word: str = "error") -> None:
    if runtime.speaks():
        note(f"{word}: {message}" + (f"\nhint: {hint}" if hint else ""))


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python or PyTorch, which is not imported here, ran out of memory."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in text
        or "not enough memory" in text
    )


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 a user's error (two lines on stderr), 2 usage, 130 interrupted. Any other exception is
    a bug and leaves with its traceback.

    Args:
        args: the arguments; those of the process when not given.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a platform's default may be unable to print Korean
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # read when torch is loaded: threads that spin while they wait make a busy machine crawl
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with runtime.quiet_unless_first():
            typed = list(sys.argv[1:] if args is None else args)
            build_app(typed)(typed, prog_name="seqtool")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (SeqtoolError, OSError) as error:
        told = from_os_error(error) if isinstance(error, OSError) else error
        word = "interrupted" if isinstance(told, Interrupted) else "error"
        _report(str(told), told.hint, word)
        return told.exit_code
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _report("out of memory", "use a smaller batch or model, or close other programs")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
