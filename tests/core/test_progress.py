from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seqtool.core.progress import (
    Display,
    EpochDone,
    Event,
    EventLog,
    GradientNorms,
    RunFinished,
    RunStarted,
    StepDone,
    describe,
    format_seconds,
    shows_progress,
)
from seqtool.core.units import perplexity_of
from seqtool.training.run import TensorBoard

STARTED = RunStarted(
    step=0,
    total_steps=2000,
    epochs=2,
    num_parameters=1_234_567,
    machine={"device": "cpu", "threads": "2"},
    resumed=False,
)
STEP = StepDone(
    epoch=1,
    step=50,
    loss=math.log(200),
    items_per_second=12_345.6,
    learning_rate=0.1,
    seconds_left=75,
    gradients=GradientNorms(norm=6.5, clipped_norm=4.0, clipped=0.25),
)
EPOCH = EpochDone(
    epoch=1,
    step=1000,
    loss=math.log(150),
    scores={"valid_perplexity": 123.456},
    is_best=True,
    items_per_second=12_000.0,
    learning_rate=0.1,
    seconds=3723.0,
)
FINISHED = RunFinished(
    reason="finished",
    epoch=2,
    step=2000,
    best_epoch=1,
    best_scores={"valid_perplexity": 123.456},
    seconds=3800.2,
)
EVENTS: list[Event] = [STARTED, STEP, EPOCH, FINISHED]


def screen(text: str) -> str:
    """What a terminal was sent, without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(9.94, "9.9s"), (59.4, "59s"), (59.6, "1:00"), (3599.7, "1:00:00"), (math.nan, "?")],
)
def test_durations(seconds: float, expected: str) -> None:
    assert format_seconds(seconds) == expected


def test_every_event_is_one_plain_line() -> None:
    lines = [describe(event, total_steps=2000, epochs=2) for event in EVENTS]
    assert lines == [
        "training for 2,000 steps (2 epochs), 1,234,567 parameters, on cpu with 2 threads",
        "epoch 1/2  step 50/2,000  loss 5.298  perplexity 200.0  12,346 tokens/s  1:15 left",
        "epoch 1/2  train perplexity 150.0  valid perplexity 123.46  12,000 tokens/s  lr 0.1  "
        "1:02:03  (best so far)",
        "finished after 1:03:20: best epoch 1, valid perplexity 123.46",
    ]
    resumed = RunStarted(500, 2000, 2, 10, {"device": "cuda", "threads": "1"}, resumed=True)
    assert describe(resumed).startswith("continuing at step 500 of 2,000 steps (2 epochs)")


def test_elsewhere_than_on_a_terminal_lines_are_plain_and_few() -> None:
    output = io.StringIO()
    with Display(Console(file=output, width=40)) as display:
        display.plan(["tagger", "parser"])
        for event in (STARTED, *[STEP] * 25, EPOCH, FINISHED):
            display.show(event, "tagger")
        display.show(RunFinished("interrupted", 0, 7, 0, {}, 2.0), "parser")  # the error says it
    # steps come every ten seconds; no line is wrapped, though none fits into 40 columns
    assert output.getvalue().splitlines() == [
        f"tagger: {describe(STARTED)}",
        f"tagger: {describe(EPOCH, epochs=2)}",
        f"tagger: {describe(FINISHED)} (1 of 2 parts)",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_on_a_terminal_bars_show_where_training_stands(width: int) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=width, color_system=None)
    started = RunStarted(0, 92_960, 10, 1, {}, resumed=False)
    step = StepDone(10, 91_234, math.log(1234), 12_345.6, 0.1, 4000)
    with Display(console) as display:
        display.plan(["", "fold 1"])
        for name in ("", "fold 1"):
            display.show(started, name)
            display.show(step, name)
        display.note("parser: reading")
    shown = screen(output.getvalue())
    assert "parser: reading" in shown
    bar, named = [line.rstrip() for line in shown.splitlines() if " left" in line][-2:]
    assert bar.startswith("epoch 10/10 ")
    assert bar.endswith(" 91234/92960 loss 7.118  ppl 1,234  12,346/s  1:06:40 left")
    assert named.startswith("fold 1: epoch 10/10 ")
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h") == 1


def test_the_log_holds_one_event_a_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    for event in (*EVENTS, StepDone(1, 1, math.nan, math.inf, 0.1, -math.inf)):
        log.write(event)
        assert (tmp_path / "log.jsonl").stat().st_size == log.size()  # at once
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    kinds = ["run_started", "step", "epoch", "run_finished", "step"]
    assert [line["event"] for line in lines] == kinds
    assert all(line["time"] > 1e9 for line in lines)
    assert lines[1]["loss"] == STEP.loss
    assert lines[2]["scores"] == {"valid_perplexity": 123.456}
    # JSON has no such numbers
    assert (lines[4]["loss"], lines[4]["items_per_second"], lines[4]["seconds_left"]) == (None,) * 3


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_log_forgets_what_is_run_again(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "log.jsonl"
    log = EventLog(path)
    sizes = [0]
    for _ in range(2):
        log.write(STEP)
        sizes.append(log.size())
    log.close()
    with path.open("ab") as stream:
        stream.write(b'{"event": "half a li')
    log = EventLog(path, keep_bytes=sizes[kept])
    log.write(EPOCH)
    log.close()
    lines = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert lines == ["step"] * kept + ["epoch"]


def scalars(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """What TensorBoard itself reads: name -> (step, value)."""
    from tensorboard.backend.event_processing import event_accumulator as accumulators

    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: make judges")
    with TensorBoard(tmp_path / "run") as board:
        assert not (tmp_path / "run").exists()  # not before the run begins
        for event in (STARTED, STEP, EPOCH):
            board.show(event)
    read = scalars(tmp_path / "run")
    assert {name: values[0] for name, values in read.items()} == {
        "train/loss": (50, pytest.approx(math.log(200))),
        "train/tokens_per_second": (50, pytest.approx(12_345.6)),
        "train/learning_rate": (50, pytest.approx(0.1)),
        "train/gradient_norm": (50, 6.5),
        "train/clipped_steps": (50, 0.25),
        "valid/valid_perplexity": (1000, pytest.approx(123.456)),
    }
    # continued at step 20: what came after it is run again
    resumed: dict[str, Any] = {**vars(STARTED), "step": 20, "resumed": True}
    again = StepDone(1, 30, 1.0, 1.0, 0.2, 1.0)
    with TensorBoard(tmp_path / "run") as board:
        for event in (RunStarted(**resumed), again):
            board.show(event)
    assert scalars(tmp_path / "run")["train/loss"] == [(30, 1.0)]


def test_a_training_shows_itself_unless_somebody_listens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heard: list[tuple[Any, ...]] = []

    @shows_progress(has_parts=True)
    def train(
        *,
        on_event: Any = None,
        on_part: Any = None,
        on_plan: Any = None,
        on_estimate: Any = None,
        progress: bool | None = None,
    ) -> tuple[bool, bool]:
        if on_part is not None:
            on_part("tagger")
        if on_event is not None:
            on_event(EPOCH, "tagger")
        return on_event is not None, on_part is not None

    assert train() == (True, True)
    assert capsys.readouterr().err.splitlines()[0] == "tagger begins"
    assert train(progress=False) == (False, False)
    assert train(on_event=lambda *event: heard.append(event)) == (True, False)
    assert capsys.readouterr().err == ""
    train(on_event=lambda *event: heard.append(event), progress=True)
    assert "tagger: epoch 1  train" in capsys.readouterr().err
    assert heard == [(EPOCH, "tagger")] * 2


def test_perplexity_never_overflows() -> None:
    assert perplexity_of(0.0) == 1.0
    assert perplexity_of(math.log(50)) == pytest.approx(50, rel=1e-14)
    assert perplexity_of(709.7) == pytest.approx(math.exp(709.7), rel=1e-14)
    assert perplexity_of(710.0) == math.inf  # the largest float is e^709.78
    assert perplexity_of(math.inf) == math.inf
    assert math.isnan(perplexity_of(math.nan))
