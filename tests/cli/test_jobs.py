"""`--jobs`, `--invalid` and directories of outputs as a user meets them."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from process_groups import is_running

import seqtool as library
from seqtool.parsing.annotation import Annotation

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of this process, though other tests have loaded torch, which is not used here."""
    monkeypatch.setattr("seqtool.core.processes.can_fork", lambda: True)
    monkeypatch.setattr(Annotation, "read_chunks", partialmethod(Annotation.read_chunks, size=200))


@pytest.fixture
def ngram() -> None:
    Path("lines.txt").write_text("the dog sees a cat\n\na cat sees <unk> dogs\n" * 30)
    library.train_ngram(["lines.txt"], "ngram")


@pytest.mark.parametrize(
    "command",
    [
        "parse a.conllu b.conllu -m parser --nbest 2 --allow-missing",
        "parse letter.txt more.txt -m pipeline",
        "tag letter.txt -m pipeline",
        "tag a.conllu b.conllu -m tagger --retag",
        "segment letter.txt letter.txt --rules",
        "segment letter.txt --rules --format text",
        "eval-ppl lines.txt -m ngram --per-token -",
    ],
)
def test_the_output_is_that_of_one_process(
    seqtool: Run, command: str, request: pytest.FixtureRequest
) -> None:
    if is_ngram := command.startswith("eval-ppl"):
        request.getfixturevalue("ngram")
    one, two = (seqtool(*command.split(), "--jobs", jobs) for jobs in (1, 2))
    assert (one.code, two.code) == (0, 0), two.stderr
    assert two.stdout == one.stdout
    if not is_ngram:  # whose figures have the seconds among them
        assert two.stderr == one.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_directory_gets_a_file_for_each(seqtool: Run, jobs: int) -> None:
    os.makedirs("in/more")
    Path("in/more/c.conllu.gz").write_bytes(gzip.compress(Path("a.conllu").read_bytes()))
    parse = f"parse -m parser --jobs {jobs}"
    done = seqtool(*f"{parse} in b.conllu -o out/".split())
    assert (done.code, done.stderr) == (0, "")
    out = Path("out")
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert written == {"more/c.conllu.gz", "b.conllu"}
    expected = [seqtool("parse", f"{name}.conllu", "-m", "parser").stdout for name in "ab"]
    assert gzip.decompress((out / "more/c.conllu.gz").read_bytes()).decode() == expected[0]
    assert (out / "b.conllu").read_text() == expected[1]
    twice = seqtool(*f"{parse} in/more out/more -o other/".split())
    assert (twice.code, "other/c.conllu.gz" in twice.stderr) == (1, True)
    assert not Path("other").exists()
    # a treebank is replaced where it or its directory is named, and not where it lies in that
    before = Path("in/more/c.conllu.gz").read_bytes()
    assert seqtool(*f"{parse} in/more/c.conllu.gz -o in/more".split()).code == 1
    assert Path("in/more/c.conllu.gz").read_bytes() == before
    assert seqtool(*f"{parse} in -o in".split()).code == 0
    assert Path("in/more/c.conllu.gz").read_bytes() != before


@pytest.mark.parametrize("jobs", [1, 2])
def test_broken_sentences_and_files_are_set_aside(
    seqtool: Run, refused: Callable[..., str], jobs: int
) -> None:
    good = Path("a.conllu").read_text()
    os.makedirs("set")
    Path("set/broken.conllu").write_text("1\tx\n\n" + good)
    Path("set/cut.conllu.gz").write_bytes(gzip.compress(good.encode())[:-9])
    Path("set/plus.conllup").write_text("# global.columns = ID LEMMA\n1\ta\n\n")
    files = "set/broken.conllu set/cut.conllu.gz set/plus.conllup b.conllu"
    parse = f"parse -m parser --jobs {jobs}"
    refused(f"{parse} {files}", "set/broken.conllu:1: ")
    done = seqtool(*f"{parse} {files} -o out.conllu --invalid aside.conllu".split())
    assert done.code == 0
    assert [line.rpartition(": ")[0] or line for line in done.stderr.splitlines()] == [
        "left out: set/cut.conllu.gz: the gzip file is damaged",
        "left out: set/plus.conllup:1: the columns are ID LEMMA",
        "written to aside.conllu: set/broken.conllu:1",
        "2 of 4 files left out",
    ]
    aside = Path("aside.conllu").read_text()
    assert aside.startswith("# set/broken.conllu:1: ")
    assert aside.endswith("\n1\tx\n\n")
    expected = seqtool("parse", "a.conllu", "b.conllu", "-m", "parser").stdout
    assert Path("out.conllu").read_text() == expected
    refused(f"{parse} {files} -o out.conllu --invalid ./out.conllu", "out.conllu")
    apart = seqtool(*f"{parse} set --skip-invalid -o apart/".split())
    assert (apart.code, os.listdir("apart")) == (0, ["broken.conllu"])
    # what an earlier run wrote of a file that is left out now does not stay
    Path("set/broken.conllu").write_bytes(b"\xff" + good.encode())
    Path("set/b.conllu").write_text(good)
    assert seqtool(*f"{parse} set --skip-invalid -o apart/".split()).code == 0
    assert Path("apart/broken.conllu").read_text() == "" != Path("apart/b.conllu").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_leaves_no_process_and_no_file(root: Path, here: Path) -> None:
    command = ("parse", "-", "-m", "parser", "--jobs", "2", "-o", "stopped.conllu")
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *command],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 60
    while len(pids := children.read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert told.startswith(b"interrupted")
    assert not any(is_running(int(pid)) for pid in pids)
    assert not [path for path in here.iterdir() if "stopped" in path.name]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("command", "model"), [("parse", "parser"), ("tag", "tagger")])
def test_letters_in_parts_are_told(seqtool: Run, command: str, model: str, jobs: int) -> None:
    rows = [line.split("\t") for line in Path("a.conllu").read_text().splitlines()]
    for normal_form, is_told in (("NFC", False), ("NFD", True)):
        rows[-2][1] = unicodedata.normalize(normal_form, "\ud55c\uad6d")
        Path("x.conllu").write_text("\n".join(map("\t".join, rows)) + "\n\n", encoding="utf-8")
        result = seqtool(command, "x.conllu", "-m", model, "--jobs", jobs)
        assert result.code == 0
        assert ("letters that are written in parts" in result.stderr) == is_told
