"""Long sentences, long lines, many types, much text, many models, many steps: memory is bounded.

The large ones run in `make soak`; `make test` has their small forms.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from faults.conftest import SOAK
from faults.runs import ROOT

KEPT = ROOT / "tests" / "kept"
OPENED = ("lm-rnn", "ngram", "parser", "tagger", "segmenter", "pipeline", "mixture")
MB = 1 << 20
TEXT_MB = 5000 if SOAK else 8


def peak_of(
    words: list[str],
    folder: Path,
    pieces: Iterable[bytes] = (),
    seconds: int = 3000,
    seen: Callable[[int], None] = lambda process: None,
) -> tuple[int, int, str]:
    """Run a command on what is fed to it; return exit code, peak memory in bytes, what it told.

    With each piece that it has taken, `seen` is called with the number of its process.
    """
    # not `ru_maxrss`: it knows the process that was forked to start this one, too
    code = (
        "import sys; from seqtool.cli.app import main; code = main(sys.argv[1:]); "
        "lines = open('/proc/self/status').read().splitlines(); "
        "print(*(line.split()[1] for line in lines if line.startswith('VmHWM')), file=sys.stderr); "
        "sys.exit(code)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )

    def feed() -> None:
        assert process.stdin is not None
        try:
            for piece in pieces:
                process.stdin.write(piece)
                seen(process.pid)
        except BrokenPipeError:
            pass
        finally:
            process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert process.stderr is not None
    told = process.stderr.read().decode("utf-8", "replace")
    process.stderr.close()
    feeder.join()
    process.wait(seconds)
    return process.returncode, int(told.split()[-1]) * 1024, told


WORDS = [b"%x" % number for number in range(1 << 16)]


def much_text(megabytes: int) -> Iterator[bytes]:
    """Give so many megabytes of lines with few types."""
    line = (ROOT / "data" / "en" / "train.txt").read_bytes()
    piece = line * (MB // len(line) + 1)
    for _ in range(megabytes):
        yield piece[: piece.rindex(b"\n", 0, MB) + 1]


STREAMED = {
    "prepare": ["prepare", "-", "--unit", "word", "--split", "100", "-o", "out", "--force"],
    "eval-ppl": ["eval-ppl", "-", "-m", str(KEPT / "ngram")],
}


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.timeout(3600)
def test_memory_does_not_grow_with_the_text(name: str, tmp_path: Path) -> None:
    few, many = 4, TEXT_MB
    (_, small, _), (code, large, told) = (
        peak_of(STREAMED[name], tmp_path, much_text(size)) for size in (few, many)
    )
    assert code == 0, told
    assert large < small + 64 * MB, f"{small / MB:.0f} MB for {few} MB, {large / MB:.0f} for {many}"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
@pytest.mark.timeout(3600)
def test_n_grams_beyond_memory_go_to_disk(tmp_path: Path) -> None:
    """Nearly every n-gram of this text is another one, and 500 MB are not enough for them."""
    num_lines, order = (400_000, 3) if SOAK else (600, 30)
    words = random.Random(0)
    line_of = (b" ".join(words.choices(WORDS, k=40 if SOAK else 1000)) for _ in range(num_lines))
    (tmp_path / "text.txt").write_bytes(b"\n".join(line_of) + b"\n")
    command = ["ngram", "counts", "text.txt", "--order", str(order)]
    code, most, told = peak_of([*command, "--memory", "20G"], tmp_path)
    assert code == 0, told
    code, peak, again = peak_of([*command, "--memory", "500M"], tmp_path)
    assert code == 0, again
    assert told.splitlines()[0] == again.splitlines()[0]
    assert peak < 700 * MB, f"{peak / MB:.0f} MB, {most / MB:.0f} MB"  # with mapped libraries


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
@pytest.mark.timeout(3600)
def test_memory_does_not_grow_with_the_trees(tmp_path: Path) -> None:
    trees = (ROOT / "data" / "en" / "test.conllu").read_bytes()
    words = ["parse", "-", "-m", str(KEPT / "parser")]
    times = (2000 if SOAK else 4) * MB // len(trees)  # 5 GB would take the time of other tests
    peaks: list[int] = []  # after each piece

    def note(process: int) -> None:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        peaks.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    code, large, told = peak_of(words, tmp_path, iter([trees] * times), seen=note)
    assert code == 0, told
    small = peaks[2 * MB // len(trees) - 1]
    assert large < small + 64 * MB, f"{small / MB:.0f} MB, then {large / MB:.0f}"


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    """Four packed megabytes of zeros are four gigabytes."""
    import gzip

    for name in STREAMED:
        (tmp_path / "zeros.gz").write_bytes(gzip.compress(bytes(100 * MB)) * (40 if SOAK else 1))
        words = ["zeros.gz" if word == "-" else word for word in STREAMED[name]]
        code, peak, told = peak_of(words, tmp_path)
        assert code == 1, told
        assert "--max-line" in told
        assert "zeros.gz:1" in told
        assert peak < 800 * MB, f"{name}: {peak / MB:.0f} MB"


@pytest.fixture
def young_heap() -> Iterator[None]:
    """What was there before a test, maybe millions of objects of others, is not searched in it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def held() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("name", OPENED)
def test_a_model_is_freed_when_it_is_closed(name: str) -> None:
    """Not when garbage is collected: that is rare, and does not count the size of arrays."""
    import seqtool

    seqtool.load(KEPT / name)  # what is imported leaves garbage
    gc.collect()
    gc.disable()
    try:
        model = seqtool.load(KEPT / name)
        left = weakref.ref(model)
        del model
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
def test_models_that_are_opened_and_closed_leave_nothing(young_heap: None) -> None:
    import seqtool

    rounds = 10_000 // len(OPENED) if SOAK else 12
    for name in OPENED * 4:
        seqtool.load(KEPT / name)
    before, files = held(), len(os.listdir("/proc/self/fd"))
    for _ in range(rounds):
        for name in OPENED:
            seqtool.load(KEPT / name)
    assert held() < before + 24 * MB
    assert len(os.listdir("/proc/self/fd")) <= files


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
@pytest.mark.timeout(3600)
def test_many_steps_leave_nothing(young_heap: None, tmp_path: Path) -> None:
    import seqtool
    from seqtool.core.config import apply_overrides, from_dict
    from seqtool.core.progress import EpochDone

    sizes: list[int] = []

    def watch(event: object) -> None:
        if isinstance(event, EpochDone):
            sizes.append(held())

    (tmp_path / "t.txt").write_text((KEPT / "text.txt").read_text("utf-8"), "utf-8")
    values: dict[str, object] = {}
    epochs = 4000 if SOAK else 20
    settings = ("hidden_size=8", "batch_size=4", "bptt=8", f"epochs={epochs}")
    apply_overrides(seqtool.NeuralLMConfig, values, settings)
    config = from_dict(seqtool.NeuralLMConfig, values)
    seqtool.train_lm(tmp_path / "t.txt", tmp_path / "lm", config, on_event=watch)
    quarter = len(sizes) // 4
    assert max(sizes[-quarter:]) < max(sizes[quarter : 2 * quarter]) + 16 * MB
