"""Much text, long lines, many models, many steps: memory is bounded."""

from __future__ import annotations

import gc
import gzip
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from faults.jobs import lay_out
from faults.runs import ROOT, Commands, leftovers

KEPT = ROOT / "tests" / "kept"
OPENED = ("lm-rnn", "ngram", "parser", "tagger", "segmenter", "pipeline", "mixture")
MB = 1 << 20


def peak_of(
    words: list[str], folder: Path, pieces: Iterable[bytes] = (), file_size: int | None = None
) -> tuple[int, int, str]:
    """Run a command on what is fed to it; return exit code, peak memory in bytes, and stderr."""
    # not `ru_maxrss`: it knows the process that was forked to start this one, too
    code = (
        "import sys; from seqtool.cli.app import main; code = main(sys.argv[1:]); "
        "lines = open('/proc/self/status').read().splitlines(); "
        "print(*(line.split()[1] for line in lines if line.startswith('VmHWM')), file=sys.stderr); "
        "sys.exit(code)"
    )
    limits = (file_size, file_size) if file_size else resource.getrlimit(resource.RLIMIT_FSIZE)
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )

    def feed() -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            for piece in pieces:
                process.stdin.write(piece)

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read().decode("utf-8", "replace")
    feeder.join()
    return process.wait(300), int(said.split()[-1]) * 1024, said


def much_of(name: str, megabytes: int) -> Iterator[bytes]:
    """Give so many megabytes of the sample, a file at a time."""
    content = (ROOT / "data" / "en" / name).read_bytes()
    for _ in range(megabytes * MB // len(content)):
        yield content


STREAMED = {
    "prepare": ["prepare", "-", "--unit", "word", "--split", "100", "-o", "out", "--force"],
    "eval-ppl": ["eval-ppl", "-", "-m", str(KEPT / "ngram")],
    "parse": ["parse", "-", "-m", str(KEPT / "parser")],
}


@pytest.mark.parametrize("name", STREAMED)
def test_memory_does_not_grow_with_the_input(name: str, tmp_path: Path) -> None:
    file, few, many = ("test.conllu", 2, 4) if name == "parse" else ("train.txt", 4, 8)
    (_, small, _), (code, large, said) = (
        peak_of(STREAMED[name], tmp_path, much_of(file, size)) for size in (few, many)
    )
    assert code == 0, said
    assert large < small + 64 * MB, f"{small / MB:.0f} MB for {few} MB, {large / MB:.0f} for {many}"


def test_n_grams_beyond_memory_go_to_disk_and_a_full_one_is_reported(tmp_path: Path) -> None:
    """Nearly every n-gram of this text is another one, and 500 MB are not enough for them."""
    words = [b"%x" % number for number in range(1 << 16)]
    chosen = random.Random(0)
    lines = (b" ".join(chosen.choices(words, k=1000)) for _ in range(600))
    (tmp_path / "text.txt").write_bytes(b"\n".join(lines) + b"\n")
    command = ["ngram", "counts", "text.txt", "--order", "40"]
    code, most, said = peak_of([*command, "--memory", "20G"], tmp_path)
    assert code == 0, said
    command += ["--memory", "500M"]
    code, peak, again = peak_of(command, tmp_path)
    assert code == 0, again
    assert said.splitlines()[0] == again.splitlines()[0]
    assert peak < 700 * MB, f"{peak / MB:.0f} MB, {most / MB:.0f} MB"  # with libraries
    (tmp_path / "out").mkdir()
    code, _, said = peak_of([*command, "-o", "out/x.tsv"], tmp_path, file_size=30 * MB)
    assert code == 1, said
    assert said.startswith("error: out: a temporary file cannot be written: ")
    assert "too large\nhint: " in said
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize(
    "words",
    [
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=hidden_size=20000"),
        ("train-lm", "t.txt", "--batch-size=4", "--bptt=8", "--set=embedding_size=1000000"),
        ("train-tagger", "t.conllu", "--set=model.encoder_size=20000"),
    ],
    ids=lambda words: words[-1],
)
def test_a_model_that_is_too_large_is_refused(
    words: tuple[str, ...], commands: Commands, tmp_path: Path
) -> None:
    lay_out(tmp_path / "work")
    stopped = commands(*words, "-o", "out", cwd=tmp_path / "work", memory=3 << 29)
    assert stopped.code == 1, stopped
    assert "error: out of memory\n" in stopped.stderr, stopped
    assert stopped.is_clean, stopped
    assert not leftovers(tmp_path / "work"), stopped


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    for name in ("prepare", "eval-ppl"):
        (tmp_path / "zeros.gz").write_bytes(gzip.compress(bytes(100 * MB)))
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


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
def test_models_that_are_opened_and_closed_leave_nothing(young_heap: None) -> None:
    import seqtool

    for name in OPENED * 4:
        seqtool.load(KEPT / name)
    before, files = held(), len(os.listdir("/proc/self/fd"))
    for _ in range(12):
        for name in OPENED:
            seqtool.load(KEPT / name)
    assert held() < before + 24 * MB
    assert len(os.listdir("/proc/self/fd")) <= files


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
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
    settings = ("hidden_size=8", "batch_size=4", "bptt=8", "epochs=20")
    apply_overrides(seqtool.NeuralLMConfig, values, settings)
    config = from_dict(seqtool.NeuralLMConfig, values)
    seqtool.train_lm(tmp_path / "t.txt", tmp_path / "lm", config, on_event=watch)
    quarter = len(sizes) // 4
    assert max(sizes[-quarter:]) < max(sizes[quarter : 2 * quarter]) + 16 * MB
