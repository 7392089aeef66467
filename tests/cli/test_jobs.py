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
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger
from process_groups import is_running

import seqtool as library
from seqtool.core import checkpoint
from seqtool.core.checkpoint import Header
from seqtool.core.config import to_dict
from seqtool.parsing.annotation import Annotation
from seqtool.parsing.pipeline.config import KIND, PipelineConfig
from seqtool.treebank.conllu import write_conllu

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, treebanks and a text."""
    folder = tmp_path_factory.mktemp("jobs")
    random_parser(tiny_config("swap")).save(folder / "parser", scores={}, data={})
    random_tagger().save(folder / "tagger", scores={}, data={})
    for seed, name in enumerate(("a.conllu", "b.conllu")):
        write_conllu(random_sentences(30, 9, seed, "XXXYYYZ"), folder / name)
    (folder / "letter.txt").write_text("The dog sleeps. It dreams.\n\nA cat sees it!\n" * 4)
    (folder / "more.txt").write_text("# sent_id = 7\n\nIt barks. It ends.\n\n" * 9)
    random_segmenter().save(folder / "pipeline/segmenter", scores={}, data={})
    random_tagger().save(folder / "pipeline/tagger", scores={}, data={})
    random_parser(tiny_config(), LABELS).save(folder / "pipeline/parser", scores={}, data={})
    whole = PipelineConfig(segmenters=1, taggers=1, parsers=1, graphs=0)
    checkpoint.amend(folder / "pipeline", Header(KIND, to_dict(whole), {}), "")
    (folder / "lines.txt").write_text("the dog sees a cat\n\na cat sees <unk> dogs\n" * 30)
    library.train_ngram([folder / "lines.txt"], folder / "ngram")
    return folder


@pytest.fixture(autouse=True)
def in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of this process, though other tests have loaded torch, which is not used here."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("seqtool.core.processes.can_fork", lambda: True)
    monkeypatch.setattr(Annotation, "read_chunks", partialmethod(Annotation.read_chunks, size=200))


@pytest.mark.parametrize(
    "command",
    [
        "parse a.conllu b.conllu -m parser",
        "parse a.conllu b.conllu -m parser --nbest 2 --allow-missing",
        "parse letter.txt more.txt -m pipeline",
        "parse letter.txt more.txt -m pipeline --nbest 2",
        "tag letter.txt -m pipeline",
        "tag a.conllu b.conllu -m tagger --retag",
        "segment letter.txt letter.txt --rules",
        "segment letter.txt --rules --format text",
        "eval-ppl lines.txt -m ngram --per-token -",
        "eval-ppl lines.txt -m ngram --per-sentence -",
    ],
)
def test_the_output_is_that_of_one_process(seqtool: Run, command: str) -> None:
    one = seqtool(*command.split())
    two = seqtool(*command.split(), "--jobs", "2")
    assert (one.code, two.code) == (0, 0), two.stderr
    assert two.stdout == one.stdout
    if not command.startswith("eval-ppl"):  # whose figures have the seconds among them
        assert two.stderr == one.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_directory_gets_a_file_for_each(seqtool: Run, folder: Path, jobs: str) -> None:
    os.makedirs("in/more", exist_ok=True)
    Path("in/more/c.conllu.gz").write_bytes(gzip.compress(Path("a.conllu").read_bytes()))
    done = seqtool("parse", "in", "b.conllu", "-m", "parser", "-o", f"out{jobs}/", "--jobs", jobs)
    assert (done.code, done.stderr) == (0, "")
    out = Path(f"out{jobs}")
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {"more/c.conllu.gz", "b.conllu"}
    for name in ("a", "b"):
        expected = seqtool("parse", f"{name}.conllu", "-m", "parser").stdout
        packed = (out / "more/c.conllu.gz").read_bytes() if name == "a" else b""
        content = gzip.decompress(packed) if packed else (out / "b.conllu").read_bytes()
        assert content.decode() == expected
    segmented = seqtool("segment", "letter.txt", "--rules", "-o", str(out), "--jobs", jobs)
    assert (segmented.code, (out / "letter.conllu").is_file()) == (0, True)
    inside = seqtool("parse", "in", "-m", "parser", "-o", "parser", "--jobs", jobs)
    assert (inside.code, Path("parser/a.conllu").exists()) == (1, False)
    assert "error: parser: is a model" in inside.stderr
    twice = seqtool("parse", "in/more", out / "more", "-m", "parser", "-o", "other/")
    assert twice.code == 1
    assert "would both be written to other/c.conllu.gz" in twice.stderr
    assert not Path("other").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_broken_sentences_and_files_are_set_aside(seqtool: Run, folder: Path, jobs: str) -> None:
    good = Path("a.conllu").read_text()
    Path("broken.conllu").write_text("1\tx\n\n" + good)
    Path("cut.conllu.gz").write_bytes(gzip.compress(good.encode())[:-9])
    Path("plus.conllup").write_text("# global.columns = ID LEMMA\n1\ta\n\n")
    files = ("broken.conllu", "cut.conllu.gz", "plus.conllup", "b.conllu")
    options = ("-m", "parser", "-o", "set.conllu", "--jobs", jobs)
    refused = seqtool("parse", *files, *options)
    assert refused.code == 1
    assert refused.stderr.startswith("error: broken.conllu:1: 2 columns")
    done = seqtool("parse", *files, *options, "--invalid", "aside.conllu")
    assert done.code == 0
    assert done.stderr.splitlines() == [
        "left out: cut.conllu.gz: the gzip file is damaged: it ends too early",
        "left out: plus.conllup:1: the columns are ID LEMMA, without FORM",
        "written to aside.conllu: broken.conllu:1: 2 columns, where CoNLL-U has 10",
        "2 of 4 files left out",
    ]
    told = "# broken.conllu:1: 2 columns, where CoNLL-U has 10\n1\tx\n\n"
    assert Path("aside.conllu").read_text() == told
    assert (
        Path("set.conllu").read_text()
        == seqtool("parse", "a.conllu", "b.conllu", *options[:2]).stdout
    )
    for name in ("set.conllu", "./set.conllu"):
        same = seqtool("parse", *files, *options, "--invalid", name)
        told = "error: broken sentences and all others would both be written"
        assert same.stderr.startswith(told)
    within = ("-o", "parsed/", "--invalid", "parsed/b.conllu")
    Path("parsed").mkdir(exist_ok=True)
    lost = seqtool("parse", *files, *options[:2], *within)
    assert lost.stderr.startswith(f"{told} to parsed/b.conllu")
    Path("set/of").mkdir(parents=True, exist_ok=True)
    for name in files:
        Path("set/of", name).write_bytes(Path(name).read_bytes())
    apart = seqtool("parse", "set", "-m", "parser", "--skip-invalid", "-o", "apart/", *options[-2:])
    assert apart.code == 0
    names = [path.name for path in Path("apart/of").iterdir()]
    assert sorted(names) == ["b.conllu", "broken.conllu"]
    alone = seqtool("parse", "cut.conllu.gz", *options, "--skip-invalid")
    assert (alone.code, alone.stderr.splitlines()[-2:]) == (
        1,
        [
            "error: cut.conllu.gz: no file can be read; the first one: the gzip file is damaged: "
            "it ends too early",
            "hint: fetch or pack it again",
        ],
    )


def test_a_lost_process_is_two_lines(
    seqtool: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("seqtool.parsing.annotation.Annotation.annotate", die)
    done = seqtool("parse", "a.conllu", "-m", "parser", "-o", "lost.conllu", "--jobs", "2")
    assert (done.code, done.stderr.count("\n")) == (1, 2)
    assert "was killed" in done.stderr
    assert "fewer --jobs" in done.stderr
    assert not Path("lost.conllu").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("parse a.conllu -m parser --format tree", "--jobs is for CoNLL-U"),
        ("parse a.conllu -m parser --trace", "--trace and --jobs do not go together"),
        ("eval-ppl lines.txt -m ngram -m ngram2", "--jobs is for one model"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    seqtool: Run, folder: Path, command: str, message: str
) -> None:
    if not Path("ngram2").exists():
        library.train_ngram([folder / "lines.txt"], folder / "ngram2")
    done = seqtool(*command.split(), "--jobs", "2")
    assert done.code == 1
    assert done.stderr.startswith(f"error: {message}")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_leaves_no_process_and_no_file(root: Path, folder: Path) -> None:
    command = ("parse", "-", "-m", "parser", "--jobs", "2", "-o", "stopped.conllu")
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *command],
        cwd=folder,
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
    assert not [path for path in folder.iterdir() if "stopped" in path.name]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("command", "model"), [("parse", "parser"), ("tag", "tagger")])
@pytest.mark.parametrize("form", ["\ud55c\uad6d", "caf\u00e9", "\u304c"])
def test_letters_in_parts_are_told(
    seqtool: Run, tmp_path: Path, form: str, command: str, model: str, jobs: int
) -> None:
    whole = Path("a.conllu").read_text(encoding="utf-8").replace("\t_\n", f"\tGloss={form}\n", 1)
    for normal_form, is_told in (("NFC", False), ("NFD", True)):
        path = tmp_path / f"{normal_form}.conllu"
        rows = [line.split("\t") for line in whole.splitlines()]
        rows[-2][1] = unicodedata.normalize(normal_form, form)
        path.write_text("\n".join(map("\t".join, rows)) + "\n\n", encoding="utf-8")
        result = seqtool(command, path, "-m", model, "--jobs", jobs)
        assert result.code == 0
        assert ("letters that are written in parts" in result.stderr) == is_told
