"""What several commands share: their options, those from configurations too, and how they print.

A command is a plain function. Where it has a parameter `settings`, the command line has an option
for each setting of a table, and the function gets those that are given by their dotted names. Where
a parameter is a dataclass of options, the command line has its fields.

Results go to stdout, through `emit`, `show_table` or `echo`; everything else goes to stderr.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shlex
import stat
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from seqtool.core import runtime, terminal
from seqtool.core.errors import PromptError, counted
from seqtool.core.terminal import echo, json_text

MAX_LETTERS = 20  # shown of those that no font has
MAX_SHOWN = 5  # broken sentences named on stderr
UNNAMED = "If not given: stdin where that is a pipe or a file, else"
FIELD_HELP = "The field of JSON Lines, or column of Parquet, with the text; text if not given."

# options of several commands
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
SeedOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Seed of every random choice.")
]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="CPU threads; all cores if not given."),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory that it may take, as 8G; else what is free."),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", min=1, max=256, metavar="N", help="Processes to work with.")
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Directory to write to.")
]
TableOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="The table (.tsv, .csv, .jsonl, .parquet); - is TSV."
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in the output.")]
MaxMinutesOption = Annotated[
    float | None, typer.Option(min=0.0, metavar="N", help="Save and stop after this long.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output directory.")]
TextFieldOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The field of .jsonl, or column of .parquet, with text."),
]
TestSplitOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Split of a corpus: test, else valid.")
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse doubtful lines of a treebank, too.")
]
MaxLineOption = Annotated[int, typer.Option(min=1, metavar="MB", help="Longest line that is read.")]

SETTINGS = "settings"  # the parameter that gets them
METAVARS = {int: "N", float: "X", str: "NAME"}


class option_for:
    """What an option sets, where its texts are not those of the field alone.

    Attributes:
        names: dotted settings, all of which get the value.
        help: in place of that of the first one's field.
        metavar: in place of the one that goes with the field's type.
    """

    def __init__(self, *names: str, help: str = "", metavar: str = "") -> None:
        self.names, self.help, self.metavar = names, help, metavar


def same_names(*settings: str) -> dict[str, str]:
    """Return options for settings that are called as these are: --prune-entropy, prune_entropy."""
    return {f"--{name.rpartition('.')[2].replace('_', '-')}": name for name in settings}


# "--hidden", "--tied/--untied" or "-n,--num" -> what it sets
OptionTable = Mapping[str, str | option_for]


def option(
    default: Any, help: str, metavar: str = "", *names: str, panel: str | None = None, **more: Any
) -> Any:
    """Declare an option, as the default of a command's parameter or of a dataclass's field.

    Args:
        default: `...` where the option must be given.
        help: one sentence.
        metavar: of its value.
        names: without a long one, it is `--` and the name of the parameter.
        panel: where it stands in --help.
        more: `min` and `max` of a number.
    """
    declare = partial(
        typer.Option, help=help, metavar=metavar or None, rich_help_panel=panel, **more
    )
    return _declared(default, declare, names)


def setting_option(default: Any, help: str, *names: str) -> Any:
    """Declare an option that stands among the settings; see `option`."""
    return option(default, help, *names, panel="Settings")


def argument(default: Any, help: str, metavar: str) -> Any:
    """Declare an argument, as `option` declares an option."""
    return _declared(default, partial(typer.Argument, help=help, metavar=metavar), None)


def _declared(default: Any, declare: Callable[..., Any], names: tuple[str, ...] | None) -> Any:
    default = dataclasses.MISSING if default is ... else default
    return dataclasses.field(default=default, metadata={"declare": declare, "names": names})


def takes_options(
    config: str = "",
    table: OptionTable | None = None,
    *,
    panel: str | None = "Settings",
    shows_defaults: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command options for settings; `with_options` makes them.

    Bounds are not told to Typer: the configuration itself refuses what is out of bounds.

    Args:
        config: the configuration, as "module:class"; imported when the options are asked for.
        table: which of its settings have options, and what these are called.
        panel: where the options stand in --help; None for those of the command itself.
        shows_defaults: the defaults of the fields are those of the command; otherwise a setting
            that is not given stays as a preset, a recipe or a run has it.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        made = partial(_setting_parameters, config, table or {}, panel, shows_defaults)
        function.setting_parameters = made  # type: ignore[attr-defined]
        return function

    return declare


def with_options(function: Callable[..., None], *, reads_text: bool = False) -> Callable[..., None]:
    """Return a command as Typer takes it: its settings and dataclasses are options of their own.

    Args:
        function: the command, with or without `takes_options`.
        reads_text: it has --max-line, too, which holds for all that it reads.

    Raises:
        KeyError: there is no setting of a name in the table.
    """
    from seqtool.core.reading import MAX_LINE, limit_lines

    groups: dict[str, Any] = {}
    set_by: dict[str, tuple[str, ...]] = {}
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(function, eval_str=True).parameters.values():
        if own.name == SETTINGS:
            for names, parameter in function.setting_parameters():  # type: ignore[attr-defined]
                set_by[parameter.name] = names
                parameters.append(parameter)
        elif dataclasses.is_dataclass(own.annotation):
            groups[own.name] = own.annotation
            hints = get_type_hints(own.annotation, include_extras=True)
            parameters += [
                _parameter(
                    field.name, hints[field.name], field if field.metadata else field.default
                )
                for field in dataclasses.fields(own.annotation)
            ]
        else:
            parameters.append(_parameter(own.name, own.annotation, own.default))
    if reads_text:
        parameters.append(_parameter("max_line", MaxLineOption, MAX_LINE >> 20))

    def command(**given: Any) -> None:
        limit_lines(given.pop("max_line", MAX_LINE >> 20) << 20)
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            given[name] = group(**{field: given.pop(field) for field in fields})
        values = {option: given.pop(option) for option in set_by}
        if set_by:
            given[SETTINGS] = {
                name: values[option]
                for option, names in set_by.items()
                for name in names
                if values[option] is not None
            }
        try:
            function(**given)
        finally:
            limit_lines(MAX_LINE)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter as Typer takes it, of one that `option` or `argument` may declare."""
    if isinstance(default, dataclasses.Field):
        names = default.metadata["names"]
        if names is not None and not any(name.startswith("--") for name in names):
            names = (f"--{name.strip('_').replace('_', '-')}", *names)
        annotation = Annotated[annotation, default.metadata["declare"](*names or ())]
        default = default.default
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _setting_parameters(
    place: str, table: OptionTable, panel: str | None, shows_defaults: bool
) -> Iterator[tuple[tuple[str, ...], inspect.Parameter]]:
    """Give for each entry of a table the settings that it sets, and the parameter for Typer."""
    module, _, class_name = place.partition(":")
    for spelt, entry in table.items():
        config = getattr(import_module(module), class_name)
        sets = option_for(entry) if isinstance(entry, str) else entry
        *sections, last = sets.names[0].split(".")
        for section in sections:
            config = get_type_hints(config)[section]
        field, kind = config.__dataclass_fields__[last], get_type_hints(config)[last]
        if get_origin(kind) in (Union, types.UnionType):
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        default = field.default if shows_defaults else None
        names = spelt.split(",")
        option = typer.Option(
            *names,
            help=sets.help or _sentence(field.metadata["help"]),
            metavar=sets.metavar or METAVARS.get(kind),
            rich_help_panel=panel,
            show_default=default is not None,
        )
        if get_origin(kind) is Literal and not sets.metavar:
            option.metavar = "|".join(get_args(kind))
        elif get_origin(kind) is tuple:  # typed as one text
            element, default = get_args(kind)[0], None
            option.parser, option.show_default = _numbers(element), False
            option.metavar = sets.metavar or "{0} {0} ...".format(METAVARS[element])
        longest = max((name.partition("/")[0] for name in names), key=len)
        name = longest.lstrip("-").replace("-", "_")
        kind = kind if kind in (int, float, bool) else str
        yield sets.names, _parameter(name, Annotated[kind | None, option], default)


def _numbers(kind: type[int] | type[float]) -> Callable[[str], tuple[float, ...]]:
    """Return what reads a list of numbers: 0 0 1, or 0,0,1."""

    def read(text: str) -> tuple[float, ...]:
        try:
            return tuple(kind(part) for part in re.split(r"[,\s]+", text.strip(", ")))
        except ValueError as error:
            wanted = "whole numbers, as in 0 0 1" if kind is int else "numbers, as in 0.5 1 1.5"
            raise typer.BadParameter(f"{text!r} is no list of {wanted}") from error

    return read


def _sentence(text: str) -> str:
    """Return a help text of a field as the command line writes it; names stay in lower case."""
    first = text.partition(" ")[0]
    begin = text if first[-1:] in ":," else text[:1].upper() + text[1:]
    return begin if begin.endswith(".") else f"{begin}."


def note(text: str) -> None:
    """Print a line to stderr."""
    echo(text, err=True)


def note_letters(missing: Collection[str]) -> None:
    """Print a line with the letters that no installed font has, the first of them."""
    shown = " ".join(sorted(missing)[:MAX_LETTERS])
    note(f"no installed font has {counted(len(missing), 'letter')}: {shown}")


def note_next(*commands: str, model: Path) -> None:
    """Print a line on what to do with a model; in each command, {} stands for its path."""
    path = shlex.quote(str(model))
    note("next: " + "  or  ".join(f"seqtool {command.format(path)}" for command in commands))


def is_stdin_given() -> bool:
    """Whether stdin is a pipe or a file, so that an input that is not named may come from there.

    A terminal is not, nor is any other device: cron and CI give /dev/null.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or no file of the system
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def stdin_instead(name: str) -> bool:
    """Whether stdin is read, as the input of this name is not given; says so if it is."""
    if is_given := is_stdin_given():
        note(f"no {name} given: reading stdin")
    return is_given


def prompt_text(given: str | None) -> str:
    """Return the text of --prompt: stdin for -, or where none is given at the end of a pipe."""
    if given is None:
        given = "-" if stdin_instead("prompt") else ""
    if given != "-":
        return given
    try:  # as of files, a byte order mark is none of the text
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "convert it: iconv -f ENCODING -t UTF-8"
        raise PromptError("the prompt is not valid UTF-8", hint=hint) from error
    return text.replace("\r\n", "\n").rstrip("\n")


def stdin_or_sample(
    name: str, kind: Literal["text", "trees", "pairs"] = "text", *, training: str = ""
) -> str:
    """Return what a command reads whose input is not named: stdin, or the English sample; say so.

    Args:
        name: of the input, as the usage of the command has it.
        kind: which of the sample is wanted.
        training: what is done with its training part, as "training on"; without it, the test part
            is used. Of a text it is the folder, which has the other parts too.
    """
    if stdin_instead(name):
        return "-"
    from seqtool.text.datasets import sample_pairs, sample_text, sample_treebank

    find = sample_treebank if kind == "trees" else sample_text
    path = sample_pairs("en") if kind == "pairs" else find("en", "train" if training else "test")
    if training:
        note(f"no {name} given: {training} the shipped English sample")
        return str(path if kind == "trees" else path.parent)
    note(f"no {name} given: using the shipped sample, {terminal.short_path(path)}")
    return str(path)


def is_folder(output: str) -> bool:
    """Return whether files are written to a folder: one that is there, or that a / ends."""
    return output != "-" and (output.endswith(("/", os.sep)) or Path(output).is_dir())


def emit(result: Any) -> None:
    """Print one JSON object to stdout; numbers that JSON cannot hold (inf, nan) become null."""
    text = json.dumps(result, default=_plain)
    echo(json_text(json.loads(text, parse_constant=lambda _: None)))


def _plain(value: Any) -> Any:
    """Return as a dictionary, a list, a number or a text what json does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    # NumPy's scalars and arrays, without importing NumPy
    return value.tolist() if hasattr(value, "tolist") else os.fspath(value)


def print_settings(config: Any, indent: str = "") -> None:
    """Print every setting as a line of the YAML file that --config takes, with its meaning."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            echo(f"{indent}{field.name}:")
            print_settings(value, f"{indent}  ")
        else:
            line = f"{indent}{field.name}: {json.dumps(value)}"  # null and true, as YAML has them
            echo(f"{line:<33} # {field.metadata['help']}")


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give names and values; what is in a section has a dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def typed() -> str:
    """Return the command as it was typed."""
    return f"{runtime.program()} {shlex.join(sys.argv[1:])}"


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether the parameter of a command was typed, be it with its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    to_stderr: bool = False,
) -> None:
    """Print a table: with rules and colours on a terminal, plain columns elsewhere.

    Cells are shown with `str`; columns of numbers are aligned to the right. A table that is no
    result goes to stderr. Where a terminal has too little room, the words of headings of numbers
    stand below one another, and other cells are folded.
    """
    from rich.cells import cell_len

    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    right = [
        bool(rows) and all(_is_number(line[i]) for line in lines[1:]) for i in range(len(columns))
    ]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    if title:
        echo(title, err=to_stderr)
    if terminal.stream(err=to_stderr).isatty():
        from rich import box
        from rich.table import Table
        from rich.text import Text

        from seqtool.core.progress import open_console

        console = open_console(err=to_stderr)
        is_wide = sum(widths) + 2 * len(columns) > console.width
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, to_right in zip(columns, right, strict=True):
            if to_right:
                heading = column.replace(" ", "\n") if is_wide else column
                table.add_column(Text(heading), justify="right", no_wrap=True)
            else:
                table.add_column(Text(column), overflow="fold")
        for line in lines[1:]:
            table.add_row(*map(Text, line))
        return console.print(table)
    for line in lines:
        padded = []
        for cell, width, to_right in zip(line, widths, right, strict=True):
            blank = " " * (width - cell_len(cell))  # str.ljust would count a wide character as one
            padded.append(blank + cell if to_right else cell + blank)
        echo("  ".join(padded).rstrip(), err=to_stderr)


def _is_number(cell: str) -> bool:
    """Whether a cell reads as a number, perhaps with a unit: 1,234  -0.5  3:07  12%  2.5 MB."""
    return cell in ("", "-") or re.fullmatch(r"[+-]?\d[\d.,:]*( ?[^\d ]{1,5})?", cell) is not None
