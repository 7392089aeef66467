from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from seqtool.core import signals
from seqtool.core.signals import Interruption, Stopped, deferred, ended_by_signals, ignored

NUMBERS = pytest.mark.parametrize("number", signals.NUMBERS)


@NUMBERS
def test_a_signal_raises_and_is_remembered(number: int) -> None:
    before = signal.getsignal(number)
    with ended_by_signals() as raised:
        with ignored():
            signal.raise_signal(number)
        assert raised == []
        with pytest.raises(Stopped, match="stopped by "):
            signal.raise_signal(number)
        assert raised == [number]
    assert signal.getsignal(number) is before


@NUMBERS
def test_what_is_unbroken_is_done_before_a_signal_raises(number: int) -> None:
    done = []

    def both() -> None:
        with deferred():
            with deferred():
                signal.raise_signal(number)
                done.append("inner")
            done.append("outer")
        done.append("more")

    with ended_by_signals(), pytest.raises(Stopped):
        both()
    assert done == ["inner", "outer"]
    with deferred():  # nothing waits any more
        pass


@NUMBERS
def test_the_first_signal_is_noted_in_training_and_the_second_raises(number: int) -> None:
    with Interruption().listening():
        signal.raise_signal(number)
        with pytest.raises(Stopped):
            signal.raise_signal(number)
    assert not Interruption().requested  # what comes after it is another training
    with ended_by_signals():
        with suppress(BaseException):  # as some libraries do while they are imported
            signal.raise_signal(number)
        assert Interruption().requested


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
        with ended_by_signals(), deferred(), Interruption().listening():
            heard.append(signal.getsignal(signal.SIGTERM) is not before)

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
