"""Options that are made from the fields of a configuration."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
import yaml
from typer.testing import CliRunner

from seqtool.cli.options import Command, flattened, offer, takes_options
from seqtool.core.config import Config, setting


@dataclass(frozen=True)
class Inner(Config):
    size: int = setting(8, "units per layer", minimum=1)
    cell: Literal["lstm", "rhn"] = setting("lstm", "lstm or rhn")
    tied: bool = setting(False, "rhn: tied weights")
    keep: tuple[int, ...] = setting((), "numbers to keep")
    rate: float | None = setting(None, "how fast.")


@dataclass(frozen=True)
class Outer(Config):
    model: Inner = setting(Inner, "the network")
    name: str = setting("x", "a name")


@dataclass(frozen=True)
class Group:
    loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False
    num: Annotated[int, typer.Option(help="A number.")] = 3


TABLE = {
    "--size": "model.size",
    "-c,--cell-name": offer("model.cell", help="The cell."),
    "--tied/--untied": "model.tied",
    "--keep": "model.keep",
    "--rate": offer("model.rate", metavar="R"),
    "--names": offer("name", "model.cell"),
}
PLACE = f"{__name__}:Outer"


def run(
    *args: str, shows_defaults: bool = False, table: Any = TABLE
) -> tuple[int, str, dict[str, Any]]:
    seen: dict[str, Any] = {}

    @takes_options(PLACE, table, shows_defaults=shows_defaults)
    def command(text: str = "t", *, settings: dict[str, Any], group: Group) -> None:
        """Do it."""
        seen.update(text=text, settings=settings, group=group)

    app = typer.Typer()
    app.command(cls=Command)(command)
    result = CliRunner().invoke(app, args)
    return result.exit_code, result.output, seen


def test_only_what_is_given_is_set() -> None:
    assert run() == (0, "", {"text": "t", "settings": {}, "group": Group()})
    _, _, seen = run("--size", "3", "-c", "rhn", "--untied", "--loud", "--num", "4", "--text", "u")
    assert seen == {
        "text": "u",
        "settings": {"model.size": 3, "model.cell": "rhn", "model.tied": False},
        "group": Group(loud=True, num=4),
    }


def test_several_numbers_and_several_settings() -> None:
    _, _, seen = run("--keep", "0, 1 2", "--rate", "0.5", "--names", "rhn")
    assert seen["settings"] == {
        "model.keep": (0, 1, 2),
        "model.rate": 0.5,
        "name": "rhn",
        "model.cell": "rhn",
    }
    code, output, _ = run("--keep", "0 x")
    assert code == 2
    assert "no list of whole numbers" in " ".join(output.replace("│", " ").split())


def test_defaults_of_the_fields_are_those_of_the_command() -> None:
    _, _, seen = run(shows_defaults=True, table={"--size": "model.size", "--keep": "model.keep"})
    assert seen["settings"] == {"model.size": 8}


def test_help_comes_from_the_fields() -> None:
    code, output, _ = run("--help", shows_defaults=True)
    assert code == 0
    text = " ".join(output.split())
    for words in (
        "--size N Units per layer. [default: 8]",
        "-c, --cell-name lstm|rhn The cell. [default: lstm]",
        "rhn: tied weights.",
        "--keep N N ... Numbers to keep.",
        "--rate R How fast.",
        "--loud",
    ):
        assert words in text


def test_bounds_are_for_the_configuration_to_refuse() -> None:
    assert run("--size", "0")[2]["settings"] == {"model.size": 0}


def test_order_of_the_options_is_that_of_the_parameters() -> None:
    @takes_options(PLACE, {"--size": "model.size"})
    def command(a: int = 1, *, settings: dict[str, Any], b: int = 2, group: Group) -> None: ...

    names = list(inspect.signature(command).parameters)
    assert names == ["a", "size", "b", "loud", "num"]


def test_a_setting_that_is_not_there_is_found_out() -> None:
    @takes_options(PLACE, {"--size": "model.nothing"})
    def command(*, settings: dict[str, Any]) -> None: ...

    with pytest.raises(KeyError):
        inspect.signature(command)


def test_every_table_names_settings_that_are_there(seqtool: Callable[..., Any]) -> None:
    from seqtool.cli.app import load_commands

    for function in load_commands().values():
        inspect.signature(function)


def test_no_configuration_is_imported_for_the_list_of_commands() -> None:
    script = (
        "import sys\nfrom seqtool.cli.app import main\n"
        "assert main(['--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'numba', 'yaml', 'seqtool.core.config'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert run.stderr == "[]\n"


@pytest.mark.parametrize(
    ("command", "text", "refused"),
    [
        (["train-lm"], "model: {cell: lstm, depth: 7}", "model.depth"),
        (["train-lm"], "training: {schedule_minimum: 0.1}", "training.schedule_minimum"),
        (["train-lm"], "model: {cell: rhn, depth: 7}", ""),
        (["train-lm"], "model: {dropout_hidden: 0.3}", "model.dropout_hidden"),
        (["train-lm", "--layers", "2"], "model: {dropout_hidden: 0.3}", ""),
        (["train-lm"], "training: {momentum: 0.9}", "training.momentum"),
        (["train-parser"], "model: {encoder_size: 9}", "model.encoder_size"),
        # what is as it is without the file is no wish
        (["train-parser"], "model: {encoder_size: 128}", ""),
        (["train-parser", "--preset", "accurate"], "model: {encoder_size: 9}", ""),
        (["train-parser", "--raw"], "parser: {model: {arc_size: 9}}", "parser.model.arc_size"),
        (["train-parser", "--preset", "graph"], "model: {lm_size: 9}", "model.lm_size"),
        (["train-parser", "--preset", "graph", "--lm", "x"], "model: {lm_size: 9}", ""),
        (["train-segmenter"], "training: {schedule_factor: 3.0}", "training.schedule_factor"),
        (["train-tagger"], "training: {schedule_factor: 3.0}", "training.schedule_factor"),
        (["train-tagger"], "learning: {dropout_lm: 0.2}", "learning.dropout_lm"),
        (["train-tagger", "--lm", "x"], "learning: {dropout_lm: 0.2}", ""),
        (["train-tagger", "--column", "X"], "learning: {dropout_lm: 0.2}", "learning.dropout_lm"),
        (["train-classifier"], "model: {layers: 2}", "model.layers"),
        (["train-classifier", "--encoder", "bilstm"], "model: {layers: 2}", ""),
    ],
)
def test_a_setting_that_does_not_count_is_refused_in_a_file_as_by_set(
    seqtool: Callable[..., Any], tmp_path: Path, command: list[str], text: str, refused: str
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    values = dict(flattened(yaml.safe_load(text)))
    typed = [word for item in values.items() for word in ("--set", "{}={}".format(*item))]
    for source, options in ((f"{path}: ", ["--config", path]), ("", typed)):
        result = seqtool(*command, *options, "--list-settings")
        assert result.code == bool(refused)
        message = f"error: {source}{refused} counts only where "
        assert result.stderr.startswith(message) if refused else not result.stderr


def test_a_file_of_all_settings_is_no_wish_for_each(
    seqtool: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "all.yaml"
    listed = seqtool("train-parser", "--preset", "linear", "--list-settings").stdout
    path.write_text(listed, encoding="utf-8")
    for preset in ("linear", "fast"):
        command = ("train-parser", "--preset", preset, "--config", path, "--list-settings")
        assert seqtool(*command).stderr == ""
