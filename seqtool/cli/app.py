"""The `seqtool` command: a table of commands, and how errors reach the user."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from seqtool.cli.options import note, with_options
from seqtool.cli.usage import COMPLETION, Command, Group, UsageError
from seqtool.core import runtime, signals, terminal
from seqtool.core.errors import Interrupted, SeqtoolError, from_os_error
from seqtool.core.version import __version__

COMMANDS = {
    "prepare": "seqtool.cli.prepare:prepare",
    "train-lm": "seqtool.cli.train_lm:train_lm",
    "ngram train": "seqtool.cli.ngram:train",
    "ngram export": "seqtool.cli.ngram:export",
    "ngram import": "seqtool.cli.ngram:import_",
    "ngram prune": "seqtool.cli.ngram:prune",
    "ngram mix": "seqtool.cli.ngram:mix",
    "ngram counts": "seqtool.cli.ngram:counts",
    "ngram classes": "seqtool.cli.ngram:classes",
    "ngram snm": "seqtool.cli.ngram_snm:snm",
    "eval-ppl": "seqtool.cli.eval_ppl:eval_ppl",
    "surprisal": "seqtool.cli.surprisal:surprisal",
    "pairs": "seqtool.cli.pairs:pairs",
    "rescore": "seqtool.cli.rescore:rescore",
    "generate": "seqtool.cli.generate:generate",
    "segment": "seqtool.cli.annotate:segment",
    "train-tagger": "seqtool.cli.train_tagger:train_tagger",
    "tag": "seqtool.cli.annotate:tag",
    "train-parser": "seqtool.cli.train_parser:train_parser",
    "parse": "seqtool.cli.annotate:parse",
    "train-classifier": "seqtool.cli.classify:train_classifier",
    "classify": "seqtool.cli.classify:classify",
    "tune": "seqtool.cli.tune:tune",
    "eval-parser": "seqtool.cli.eval_parser:eval_parser",
    "draw": "seqtool.cli.draw:draw",
    "serve": "seqtool.cli.serve:serve",
    "analyse report": "seqtool.cli.analyse:report",
    "analyse gradients": "seqtool.cli.analyse:gradients",
    "analyse spectrum": "seqtool.cli.analyse:spectrum",
    "analyse stack": "seqtool.cli.analyse:stack",
    "analyse gates": "seqtool.cli.analyse:gates",
    "analyse dynamics": "seqtool.cli.analyse:dynamics",
    "analyse cells": "seqtool.cli.analyse:cells",
    "analyse context": "seqtool.cli.analyse:context",
    "analyse surprisal": "seqtool.cli.analyse:surprisal",
    "analyse sparsity": "seqtool.cli.analyse:sparsity",
    "analyse errors": "seqtool.cli.analyse:errors",
    "analyse embeddings": "seqtool.cli.analyse:embeddings",
    "analyse states": "seqtool.cli.analyse:states",
    "inspect": "seqtool.cli.inspect:inspect",
    "pack": "seqtool.cli.inspect:pack",
    "fetch": "seqtool.cli.prepare:fetch",
    "demo": "seqtool.cli.demo:demo",
    "help": "seqtool.cli.help:show_manual",
}

# how `seqtool --help` lists the commands; those that are not named are in the last group
PANELS = {
    "Start": "demo help",
    "Data": "prepare fetch inspect pack",
    "Language models": "train-lm eval-ppl generate ngram surprisal pairs rescore",
    "Parsing": "train-parser parse train-tagger tag segment eval-parser draw",
    "Labels of texts": "train-classifier classify",
    "More": "analyse tune serve",
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}

GROUPS = {
    "ngram": "Estimate, prune and mix n-gram models; ARPA files, counts of n-grams, word classes.",
    "analyse": "Look at what models do; without a name, all that fits those in runs/, on one page.",
}
# what the name of a group alone runs
DEFAULTS = {"analyse": "report"}

READ_NO_TEXT = (  # these have no --max-line
    *("generate", "ngram export", "ngram prune", "analyse cells", "analyse embeddings"),
    *("serve", "pack", "fetch", "demo", "help"),
)
# what torchrun may start several times at once
IN_SEVERAL_PROCESSES = ("train-lm",)

EPILOG = (
    "Start with `seqtool demo`. `seqtool help` shows the manual. Every command has its own --help, "
    "and with --debug it shows the traceback of an error."
)
DEBUG = "--debug"

# what Python, PyTorch, Numba, the system's loader and drivers of GPUs say without memory
_NO_MEMORY = re.compile(
    "out ?of ?memory|not enough memory|(can't|cannot|unable to) allocate|bad_alloc|bad allocation"
    "|alloc_failed|failed to map segment|can't start new thread|error return without exception set",
    re.IGNORECASE,
)
NO_MEMORY_HINT = (
    "use a smaller batch or model, end other programs, raise ulimit -v, or, on a GPU, --device cpu"
)
_OF_GPU = re.compile("cuda|cublas|hip |mps |OutOfMemoryError", re.IGNORECASE)


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal.echo(f"seqtool {__version__}")
        raise typer.Exit


def _seqtool(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show the traceback of an error, of any command.")
    ] = False,
) -> None:
    """Train, measure and use language models and dependency parsers."""
    if context.invoked_subcommand not in (None, *IN_SEVERAL_PROCESSES):
        runtime.refuse_several(str(context.invoked_subcommand))


def load_commands() -> dict[str, Callable[..., None]]:
    """Return the function of every command, as Typer takes it, by its name."""
    return {name: load_command(name) for name in COMMANDS}


def load_command(name: str) -> Callable[..., None]:
    """Return the function of a command as Typer takes it; see `with_options`."""
    return with_options(_written(name), reads_text=name not in READ_NO_TEXT)


def _written(name: str) -> Callable[..., None]:
    """Return the function of a command as it stands in its module."""
    module, _, function = COMMANDS[name].partition(":")
    command: Callable[..., None] = getattr(import_module(module), function)
    return command


def complete(args: Sequence[str]) -> list[str]:
    """Return what was typed, with the command of a group that has one of its own to run."""
    typed = list(args)
    if typed and typed[0] in DEFAULTS:
        is_alone = len(typed) == 1 or typed[1].startswith("-")
        if is_alone and not {"-h", "--help"}.intersection(typed[1:2]):
            typed.insert(1, DEFAULTS[typed[0]])
    return typed


def build_app(args: Sequence[str] | None = None) -> typer.Typer:
    """Return the Typer application with every command of `COMMANDS`.

    The first word of a name of two is that of a group.

    Args:
        args: what was typed. The command that it names is built alone, without the modules of the
            others; where it names none, all have help texts, but no options.
    """
    named = [" ".join(args[:size]) for size in (1, 2)] if args is not None else []
    used = set(named) & COMMANDS.keys()
    app = typer.Typer(
        name="seqtool",
        cls=Group,
        # the options that install it belong to no command, and take their time to build
        add_completion=not used or COMPLETION in os.environ,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(_seqtool)
    groups = {"": app}
    order = {name: number for number, name in enumerate(PANEL_OF)}
    for name in sorted(used or COMMANDS, key=lambda name: order.get(name.split()[0], len(order))):
        group, _, last = name.rpartition(" ")
        panel = PANEL_OF.get(group or name, "More")
        if group and group not in groups:
            groups[group] = typer.Typer(cls=Group, help=GROUPS[group], no_args_is_help=True)
            app.add_typer(groups[group], name=group, rich_help_panel=panel)
        written = _written(name)
        groups[group].command(
            last,
            cls=Command,
            help=written.__doc__,
            epilog="\n  ".join(("Examples:", *getattr(written, "examples", ()))),
            rich_help_panel=None if group else panel,
        )(load_command(name) if used or args is None else _listed)
    return app


def _listed() -> None:
    """Stand for a command in the list of all: options take their time to build."""


def _report(message: str, hint: str = "", word: str = "error") -> None:
    if runtime.reports_errors():
        for line in (f"{word}: {message}", *([f"hint: {hint}"] if hint else [])):
            note(" ".join(line.splitlines()))


def _lack_of_memory(error: BaseException | None) -> str:
    """Return the message where memory ran out, or an error came of it; "" elsewhere."""
    while error is not None:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM:
            return "out of memory"
        # other errors may quote a text in which these words stand
        if isinstance(error, (RuntimeError, ImportError, SystemError)) and _NO_MEMORY.search(text):
            return "the GPU is out of memory" if _OF_GPU.search(text) else "out of memory"
        error = error.__cause__ or error.__context__
    return ""


def _exit_code(error: BaseException, stopped_by: int | None, debug: bool) -> int:
    """Say in two lines what ended a command, and return the exit code.

    Args:
        error: the exception; what others made of it if a signal raised it.
        stopped_by: the number of that signal.
        debug: show the traceback, too.
    """
    if stopped_by is not None:
        hint = "run the command again; a training that saved its state goes on with --resume"
        _report(f"stopped by {signals.name_of(stopped_by)}", hint, "interrupted")
        return 128 + stopped_by
    match error:
        case SystemExit():
            if isinstance(error.__context__, BrokenPipeError):  # Rich's, as nobody reads the help
                return terminal.READER_GONE
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case typer.Exit():
            return error.exit_code
        case KeyboardInterrupt():
            return 130
        case BrokenPipeError():  # of stdout, or what -o names; who read it has seen enough
            return terminal.READER_GONE
    if debug:
        note("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, UsageError):
        message = error.format_message()
        if message.strip():  # otherwise the help was shown already
            command = error.ctx.command_path if error.ctx else "seqtool"
            text = message[:1].lower() + message[1:].rstrip(".")
            _report(text, f"see `{command} --help`")
        return 2
    if message := _lack_of_memory(error):
        traceback.clear_frames(error.__traceback__)  # what they hold is needed to say it
        _report(message, NO_MEMORY_HINT)
        return 1
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "torch":
        hint = "pip install torch; `seqtool help first-hour` has smaller builds of it"
        _report("this needs PyTorch, which is not installed", hint)
        return 1
    if isinstance(error, OSError):
        error = from_os_error(error)
    if isinstance(error, SeqtoolError):
        word = "interrupted" if isinstance(error, Interrupted) else "error"
        _report(str(error), error.hint, word)
        return error.exit_code
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} in {os.path.basename(place.filename)}:{place.lineno}: {error}"
    _report(what, f"this is a bug of seqtool: report it with what {DEBUG} shows")
    return 1


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 1 an error (two lines on stderr), 2 usage, 130 interrupted by Ctrl-C or with the state
    of a run saved, 143 by SIGTERM, 129 by SIGHUP, 141 nobody reads the output any more. It is 0
    only if all of the output was written.

    Args:
        args: the arguments; those of the process when not given. `--debug` among them shows the
            traceback of an error, too.
    """
    terminal.open_outputs()
    # read when torch is loaded: threads that spin while they wait make a busy machine crawl
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    typed = list(sys.argv[1:] if args is None else args)
    own = typed[: typed.index("--")] if "--" in typed else typed
    if debug := DEBUG in own:
        typed.remove(DEBUG)
    typed = complete(typed)
    if COMPLETION in os.environ:  # the words are those of the shell
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        typed = line.split()[1:]

    def run() -> None:
        with runtime.quiet_unless_first():
            build_app(typed)(typed, prog_name="seqtool")

    code = 0
    with signals.ended_by_signals() as raised:
        for step in (run, terminal.close_outputs):
            try:
                step()
            except BaseException as error:
                with signals.ignored():
                    code = code or _exit_code(error, raised[-1] if raised else None, debug)
    return code
