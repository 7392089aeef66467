from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from seqtool.cli import app
from seqtool.core import signals
from seqtool.core.signals import Interruption, Stopped, ended_by_signals, ignored, unbroken

NUMBERS = pytest.mark.parametrize("number", signals.NUMBERS)


@NUMBERS
def test_a_signal_raises_and_is_remembered(number: int) -> None:
    before = signal.getsignal(number)
    with ended_by_signals() as ending:
        assert ending.number is None
        with pytest.raises(Stopped, match="stopped by "):
            signal.raise_signal(number)
        assert ending.number == number
    assert signal.getsignal(number) is before
    with ended_by_signals() as ending:
        assert ending.number is None


@NUMBERS
def test_what_is_unbroken_is_done_before_a_signal_raises(number: int) -> None:
    done = []

    def both() -> None:
        with unbroken():
            with unbroken():
                signal.raise_signal(number)
                done.append("inner")
            done.append("outer")
        done.append("more")

    with ended_by_signals(), pytest.raises(Stopped):
        both()
    assert done == ["inner", "outer"]
    with unbroken():  # nothing waits any more
        pass


@NUMBERS
def test_an_import_that_a_signal_would_abort_is_not_broken(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one such package, all is run before the signal raises; of another one, it is not."""
    source = f"import signal\nsignal.raise_signal({int(number)})\nfrom pathlib import Path\n"
    source += "Path(__file__).with_suffix('.done').touch()\n"
    for name in ("kept_whole", "broken_off"):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(signals, "UNBROKEN_IMPORTS", {"kept_whole"})
    finders = list(sys.meta_path)
    for name in ("kept_whole", "broken_off"):
        with ended_by_signals(), pytest.raises(Stopped):
            importlib.import_module(name)
        assert (tmp_path / f"{name}.done").exists() == (name == "kept_whole")
        assert name not in sys.modules
    assert sys.meta_path == finders


@NUMBERS
def test_a_signal_that_comes_while_the_end_is_told_changes_nothing(number: int) -> None:
    with ended_by_signals() as ending:
        with ignored():
            signal.raise_signal(number)
        with unbroken():
            pass
    assert ending.number is None


def test_a_second_signal_while_the_first_is_told_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []

    def report(*lines: str) -> None:
        signal.raise_signal(signal.SIGTERM)
        told.append(lines[0])

    def build(typed: object) -> object:
        return lambda *args, **given: signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(app, "_report", report)
    monkeypatch.setattr(app, "build_app", build)
    assert app.main(["parse"]) == 128 + signal.SIGTERM
    assert told == ["stopped by SIGTERM"]


def test_no_signal_comes_again_while_a_command_cleans_up() -> None:
    threads = threading.active_count()
    with ended_by_signals():
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        assert threading.active_count() == threads  # none waits to send it once more


def test_training_stops_at_once_after_a_signal_that_something_caught() -> None:
    with ended_by_signals():
        with suppress(BaseException):  # as some libraries do while they are imported
            signal.raise_signal(signal.SIGTERM)
        assert Interruption().requested
    with Interruption().listening():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
    assert not Interruption().requested  # what comes after it is another training


@NUMBERS
def test_the_first_signal_is_noted_in_training_and_the_second_raises(number: int) -> None:
    interruption = Interruption()
    with interruption.listening():
        signal.raise_signal(number)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@NUMBERS
def test_what_is_ignored_stays_ignored(number: int) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with ended_by_signals(), Interruption().listening():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def test_other_threads_hear_nothing() -> None:
    def listen() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with ended_by_signals(), unbroken(), Interruption().listening():
            assert signal.getsignal(signal.SIGTERM) is before
            heard.append(False)

    heard: list[bool] = []
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [False]


@pytest.mark.skipif(os.name == "nt", reason="processes there hear Ctrl-C all the same")
def test_processes_that_are_started_may_be_kept_from_signals() -> None:
    script = "import os, signal; [os.kill(os.getpid(), n) for n in (1, 2, 15)]; print('on')"
    command = [sys.executable, "-c", script]
    with signals.kept_from_children():
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "on\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
