"""The table of language models on a tiny text: what is trained, kept, mixed, and refused."""

from __future__ import annotations

import io
import json
import math
import random
import resource
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from benchmarks import lm_table
from benchmarks.lm_table import ROWS, Row, Table, main

from seqtool.core import checkpoint
from seqtool.core.errors import SeqtoolError
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


def test_a_mixture_is_of_the_best_network(folder: Path) -> None:
    table = Table(folder / "out", folder, "1m")
    table.figures = {
        "kn5": {"perplexity": 10.0},
        "lstm": {"perplexity": 30.0},
        "gru": {"perplexity": 20.0},
        "rhn": {"perplexity": None},
        "snm": {"perplexity": 15.0},
    }
    both = next(row for row in ROWS if row.name == "both")
    assert table._parts(both) == ["gru", "kn5"]
    four = next(row for row in ROWS if row.name == "four")
    assert table._parts(four) == ["gru", "lstm", "snm", "kn5"]
    assert table._parts(Row("any", "any", "--cell rnn")) == []


def test_halves_make_a_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(folder / "out", folder, "1m")
    halves = iter([(8.0, 10), (2.0, 20)])

    def scored(parts: object, adapt: object, text: object) -> dict[str, float | None]:
        perplexity, tokens = next(halves)
        figures = {"perplexity": perplexity, "tokens": tokens}
        return figures | {"score_tokens_per_second": 5.0, "score_peak_megabytes": float(tokens)}

    monkeypatch.setattr(table, "_scored", scored)
    both = next(row for row in ROWS if row.name == "both")
    found = table._measured(both, ["gru", "kn5"])
    # (10 ln 8 + 20 ln 2) / 30 = ln 2 (30 + 20) / 30
    assert found["perplexity"] == pytest.approx(2 ** (50 / 30))
    assert (found["tokens"], found["score_peak_megabytes"]) == (30, 20.0)
    halves = iter([(8.0, 10), (None, 20)])  # type: ignore[list-item]
    assert table._measured(both, ["gru", "kn5"])["perplexity"] is None
    table.figures = {"both": {**found, "perplexity": None}}
    assert list(table._cells(both))[:2] == ["best network + KN5", "infinite"]


def test_a_command_that_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SeqtoolError, match="seqtool inspect failed"):
        lm_table.run("inspect", str(tmp_path / "none"))
    assert "error:" in capfd.readouterr().err
    printed, memory = lm_table.run("inspect", "--help")
    assert "Usage: " in printed
    # a process that was made of a large one begins with the peak of that
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    assert 5 < memory < 1_000 + own or math.isnan(memory)


def test_make_passes_it_on(root: Path) -> None:
    made = subprocess.run(
        ["make", "-n", "lm-table", "DATA=my text", "TIME=1m", "ROWS=kn5"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '-m benchmarks.lm_table "my text"' in made.stdout
    assert "--time-limit 1m --rows kn5" in made.stdout
