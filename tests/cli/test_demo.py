from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from seqtool.cli import demo
from seqtool.cli.app import COMMANDS

Run = Callable[..., Any]

# later options win
TINY = {
    "ngram": " --order 2",
    "rhn": " --hidden 4 --epochs 1 --batch-size 64",
    "parser": " --hidden 16 --epochs 1 --set lexical_size=16 --set tag_size=8",
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the demo's models as small as can be; return where it runs."""

    def smaller(command: demo.Command) -> demo.Command:
        extra = (more for model, more in TINY.items() if f" -o {{out}}/{model} " in command.line)
        return command._replace(line=command.line + next(extra, ""))

    steps = [step._replace(commands=[*map(smaller, step.commands)]) for step in demo.STEPS]
    monkeypatch.setattr(demo, "STEPS", steps)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


def _sections(screen: str) -> list[str]:
    """Return what stands under each title, which is checked to have its number."""
    titles = [f"\n{number}. {step.title}\n" for number, step in enumerate(demo.STEPS, start=1)]
    places = [screen.index(title) for title in titles]
    assert places == sorted(places)
    return [screen[begin:end] for begin, end in pairwise([*places, len(screen)])]


def test_tells_its_steps_in_order_with_commands_that_can_be_typed(tiny: Path, seqtool: Run) -> None:
    result = seqtool("demo")
    assert (result.code, result.stderr) == (0, "")
    sections = _sections(result.stdout)
    for step, section in zip(demo.STEPS, sections, strict=True):
        typed = re.findall(r"^\$ ((?:.*\\\n)*.*)", section, re.MULTILINE)[: len(step.commands)]
        lines = [each.line.format(out="runs/demo") for each in step.commands]
        words_typed = [shlex.split(each.replace("\\\n", "")) for each in typed]
        assert words_typed == [shlex.split(each) for each in lines]
        for words in words_typed:
            assert words[0] != "seqtool" or {words[1], " ".join(words[1:3])} & set(COMMANDS)
    # the excerpts are there
    ngram, rhn, written, parser, tree, beside, table = sections[1:8]
    for model, section in (("ngram", ngram), ("rhn", rhn)):
        perplexity = re.findall(
            r"^perplexity +(\d+\.\d+)\n  of the grammar +18\.94$", section, re.M
        )
        assert len(perplexity) == 1
        assert re.search(rf"^{model} .* {perplexity[0]} +18\.94 ", table, re.M)
    assert len(re.findall("^the old", written, re.M)) == 3
    las = re.findall(r"^LAS +\S+ +\S+ +(\S+)", parser, re.M)
    assert re.search(rf"^parser .* {las[0]} ", table, re.M)
    words = re.findall(r"^[│┌├└ ─●]+ (\d+) (\S+) +\S+ +\S+$", tree, re.M)
    assert [number for number, _ in words] == [str(i) for i in range(1, 13)]
    for number, word in words:
        assert re.search(rf"^\d+\.\d+ +[│┌├└ ─●]+ {number} {re.escape(word)} ", beside, re.M)
    assert (tiny / "curve.svg").is_file()
    # what belongs to this folder and not to the command stands in a narrow terminal
    assert max(map(len, result.stdout.replace(str(ROOT), "").splitlines())) <= 80


def test_json_and_errors(tiny: Path, seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = demo.STEPS
    failing = demo.Step("Fail.", [demo.Command("seqtool train-lm nowhere")])
    monkeypatch.setattr(demo, "STEPS", [steps[0], failing, steps[4]])
    failed = seqtool("demo")
    error, hint = failed.stderr.splitlines()
    assert failed.code == 1
    assert error.startswith("error: seqtool train-lm: nowhere")
    assert hint.startswith("hint: ")
    # a second run replaces what the first one made; without a picture, it goes on
    assert (tiny / "corpus").is_dir()
    monkeypatch.setattr(demo, "MODELS", ("ngram", "parser"))
    monkeypatch.setattr(demo, "PLOT", "seqtool inspect {out}/ngram --plot {out}/curve.none")
    no_picture = steps[-1]._replace(commands=[demo.Command(demo.PLOT, demo.ALL)])
    monkeypatch.setattr(demo, "STEPS", [*steps[:2], no_picture, steps[4]])
    result = seqtool("demo", "--json")
    assert result.code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert [Path(found["model"]).name for found in shown["models"]] == ["ngram"]
    assert all(found["test"]["true_perplexity"] == 18.94 for found in shown["models"])
    assert [set(found["test"]) for found in shown["parsers"]] == [{"UAS", "LAS"}]
    assert 0 < shown["models"][0]["seconds"] < shown["seconds"]
    assert "No picture is drawn: " in result.stderr
    assert "Open the picture" not in result.stderr
