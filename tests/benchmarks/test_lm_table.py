"""The table of language models on a tiny text: what is trained, kept, mixed, and refused."""

from __future__ import annotations

import io
import json
import random
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from benchmarks import lm_table
from benchmarks.lm_table import ROWS, main

from seqtool.core import checkpoint
from seqtool.lm.evaluation import evaluate_lm

TINY = ("--set", "hidden_size=8", "--set", "time_limit=null", "--set", "epochs=1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chooser = random.Random(1)
    for name, num_lines in (("train", 300), ("valid", 60)):
        lines = [" ".join(chooser.choices("abcdef", k=5)) for _ in range(num_lines)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def in_this_process(command: str, *words: str) -> tuple[str, float]:
    """Run a command without a new process: torch is imported once. The memory is made up."""
    from seqtool.cli.app import main as seqtool

    with redirect_stdout(io.StringIO()) as printed:
        assert seqtool([*command.split(), *words]) == 0
    return printed.getvalue(), 100.0


def arguments(folder: Path, *more: str) -> list[str]:
    return [str(folder), "--out", str(folder / "out"), *TINY, *more]


def test_settings_of_every_row_are_a_network() -> None:
    """The options are those of train-lm, and what they ask for can be built."""
    from typer.testing import CliRunner

    from seqtool.cli.app import build_app

    for row in ROWS:
        if not row.is_network:
            continue
        words = ["train-lm", *lm_table.COMMON.split(), *row.options.split(), "--list-settings"]
        listed = CliRunner().invoke(build_app(words), words)
        assert listed.exit_code == 0, row.name
        assert "hidden_size" in listed.stdout


def test_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lm_table, "run", in_this_process)
    assert main(arguments(folder, "--rows", "kn5,window,both")) == 0
    out = folder / "out"
    table = (out / "models.md").read_text()
    assert capsys.readouterr().out.startswith(table.rstrip("\n"))
    assert len(table.splitlines()) == 2 + len(ROWS)
    assert table.count("not run") == len(ROWS) - 3
    kept = json.loads((out / "models.json").read_text())["figures"]
    assert kept["both"]["parts"] == ["window", "kn5"]
    # as the library measures them
    measured = {
        name: evaluate_lm(checkpoint.load(out / name), folder / "valid.txt").perplexity
        for name in ("kn5", "window")
    }
    for name, perplexity in measured.items():
        assert kept[name]["perplexity"] == pytest.approx(perplexity, rel=1e-9)
        assert kept[name]["parameters"] == checkpoint.read_header(out / name).num_parameters
        assert kept[name]["train_tokens_per_second"] > 0
        assert kept[name]["train_peak_megabytes"] == 100.0
    # weights fitted on a half are about as good on the other: random text has no surprises
    assert kept["both"]["tokens"] == kept["kn5"]["tokens"]
    assert kept["both"]["perplexity"] < 1.02 * min(measured.values())
    halves = [(out / f"half{number}.txt").read_text() for number in (1, 2)]
    assert "".join(halves) == (folder / "valid.txt").read_text()


def test_what_is_kept_and_what_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: str, *words: str) -> tuple[str, float]:
        called.append((command, words))
        if command == "train-lm":
            raise KeyboardInterrupt
        return in_this_process(command, *words)

    called: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(lm_table, "run", run)
    assert main(arguments(folder, "--rows", "kn5,lstm")) == 130
    assert "the same command goes on" in capsys.readouterr().err
    # what was measured is not measured again; a run that was begun goes on
    (folder / "out" / "lstm").mkdir()
    (folder / "out" / "lstm" / "run.json").write_text("{}")
    assert main(arguments(folder, "--rows", "kn5,lstm")) == 130
    assert [command for command, _ in called] == [
        *("prepare", "ngram train", "eval-ppl", "train-lm", "train-lm")
    ]
    assert "--resume" not in called[-2][1]
    assert called[-1][1][0] == "--resume"
    for more, message in (
        (("--time-limit", "1m"), "models of another text or time"),
        (("--rows", "lst"), "no row is called 'lst'"),
        (("--rows", "both"), "both needs a network, which is not in the table yet"),
    ):
        assert main(arguments(folder, *more)) == 1
        assert message in capsys.readouterr().err
    assert main([str(folder / "none")]) == 1
    assert "no such file" in capsys.readouterr().err
