"""The `seqtool` command: a table of commands, and how errors reach the user."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from seqtool.cli.options import COMPLETION, Command, Group, UsageError, WithMaxLine, note
from seqtool.cli.usage import other_name
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
    "train-snm": "seqtool.cli.train_snm:train_snm",
    "eval-ppl": "seqtool.cli.eval_ppl:eval_ppl",
    "compare": "seqtool.cli.compare:compare",
    "surprisal": "seqtool.cli.surprisal:surprisal",
    "pairs": "seqtool.cli.pairs:pairs",
    "generate": "seqtool.cli.generate:generate",
    "train-segmenter": "seqtool.cli.train_segmenter:train_segmenter",
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
    "fetch": "seqtool.cli.prepare:fetch",
    "demo": "seqtool.cli.demo:demo",
    "help": "seqtool.cli.help:show_manual",
}

GROUPS = {
    "ngram": "Estimate, prune and mix n-gram models; ARPA files, counts of n-grams, word classes.",
    "analyse": "Look at what models do; without a name, all that fits those in runs/, on one page.",
}
# what the name of a group alone runs
DEFAULTS = {"analyse": "report"}

READ_NO_TEXT = (
    *(
        "generate",
        "ngram export",
        "ngram prune",
        "analyse cells",
        "analyse embeddings",
    ),
    *("serve", "fetch", "demo", "help"),
)

# what torchrun may start several times at once
IN_SEVERAL_PROCESSES = ("train-lm",)

EPILOG = (
    "Start with `seqtool demo`. `seqtool help` shows the manual. Every command has its own --help, "
    "and with --debug it shows the traceback of an error."
)
DEBUG = "--debug"


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
    """Return the function of every command, by its name."""
    return {name: load_command(name) for name in COMMANDS}


def load_command(name: str) -> Callable[..., None]:
    """Return the function of a command."""
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
            others; where it names none, the others have help texts, but no options.
    """
    named = [" ".join(args[:size]) for size in (1, 2)] if args is not None else []
    used = set(named) & COMMANDS.keys()
    app = typer.Typer(
        name="seqtool",
        cls=Group,
        # the options that install it belong to no command, and take their time to build
        add_completion=not used or COMPLETION in os.environ,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(_seqtool)
    groups = {"": app}
    for name in COMMANDS:
        if args is None or name in used:
            function = load_command(name)
            function = function if name in READ_NO_TEXT else WithMaxLine(function)
        else:
            function = _stand_in("" if used else load_command(name).__doc__)
        group, _, last = name.rpartition(" ")
        if group and group not in groups:
            groups[group] = typer.Typer(cls=Group, help=GROUPS[group], no_args_is_help=True)
            app.add_typer(groups[group], name=group)
        lines = "\n".join(getattr(function, "examples", ()))
        groups[group].command(last, cls=Command, epilog=lines)(function)
    return app


def _stand_in(help_text: str | None) -> Callable[[], None]:
    """Return a command that is listed, and not run: options take their time to build."""

    def command() -> None:
        raise AssertionError("not the command that was typed")

    command.__doc__ = help_text
    return command


def _report(message: str, hint: str = "", word: str = "error") -> None:
    if runtime.reports_errors():
        lines = [f"{word}: {message}", *([f"hint: {hint}"] if hint else [])]
        note("\n".join(" ".join(line.splitlines()) for line in lines))


# what Python, PyTorch, Numba and the system's loader say when there is no memory left
_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "unable to allocate",
    "bad_alloc",
    "bad allocation",
    "failed to map segment from shared object",
    "can't start new thread",
    "error return without exception set",  # what Python itself says of some
)


_MEMORY_HINT = (
    "close other programs, raise a limit on memory (ulimit -v), or use a smaller batch or model"
)


# what PyTorch says of a GPU's memory: its allocator (whose errors have a class of their own), the
# driver, cuBLAS, and Apple's GPUs
_GPU_CLASS = "OutOfMemoryError"
_NO_GPU_MEMORY = (
    "cuda out of memory",
    "hip out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "mps backend out of memory",
)

_GPU_MEMORY_HINT = (
    "use a smaller batch or model, end other programs that use the GPU, or use --device cpu"
)


def _lack_of_memory(error: BaseException | None) -> tuple[str, str] | None:
    """Return message and hint where memory ran out, or an error came of it; None elsewhere."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return "out of memory", _MEMORY_HINT
        # other errors may quote a text in which these words stand
        if isinstance(error, (RuntimeError, ImportError, SystemError)):
            text = str(error).lower()
            is_of_gpu = type(error).__name__ == _GPU_CLASS
            if is_of_gpu or any(words in text for words in _NO_GPU_MEMORY):
                return "the GPU is out of memory", _GPU_MEMORY_HINT
            if any(words in text for words in _NO_MEMORY):
                return "out of memory", _MEMORY_HINT
        error = error.__cause__ or error.__context__
    return None


def _judge(error: BaseException, stopped_by: int | None, *, debug: bool) -> int:
    """Tell what ended a command, in two lines, and return the exit code.

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
            hint = f"see `{command} --help`"
            if ours := other_name(command, getattr(error, "option_name", "")):
                hint = f"it is {ours} here; {hint}"
            _report(message[:1].lower() + message[1:].rstrip("."), hint)
        return 2
    if (message_and_hint := _lack_of_memory(error)) is not None:
        traceback.clear_frames(error.__traceback__)  # what they hold is needed to say it
        _report(*message_and_hint)
        return 1
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "torch":
        hint = "pip install torch; `seqtool help install` has smaller builds of it"
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
                    code = code or _judge(error, raised[-1] if raised else None, debug=debug)
    return code
