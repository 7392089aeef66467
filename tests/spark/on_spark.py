"""On a real Spark: what its workers write is what one process writes, also when one is killed.

One session serves all tests of this file; files are cut into blocks of some sentences. `test_spark`
runs them in a process of their own.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CommandResult
from parsing.parser.tiny import random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter

import seqtool as package
from seqtool.core.errors import DataError
from seqtool.lm.ngram.arpa import word_columns
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.table import BackoffTable
from seqtool.parsing.annotation import Annotation, open_models
from seqtool.spark.ngrams import temporary_folder
from seqtool.spark.session import without_pandas_warning
from seqtool.treebank.conllu import read_conllu, write_conllu

Run = Callable[..., CommandResult]
BLOCK_BYTES = 2500  # so that a few dozen sentences are several blocks
CLUSTER = Path(tempfile.gettempdir(), f"seqtool-cluster-{os.getpid()}")
TEXT = "the dog sees a cat\na cat\n\nthe <unk> sees the dog\nthe dog\n" * 40


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from seqtool.spark.session import spark_session

    conf = {
        "spark.sql.files.maxPartitionBytes": str(BLOCK_BYTES),
        "spark.sql.shuffle.partitions": "3",
        # else Spark makes one of several small ones
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # begins sooner
        # a file system of its own, whose paths are those of a cluster
        "spark.hadoop.fs.viewfs.mounttable.cluster.link./data": f"file://{CLUSTER}",
    }
    CLUSTER.mkdir()
    with spark_session("local[2]", conf) as session:
        yield session
    shutil.rmtree(CLUSTER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A treebank with a broken sentence in a later block, a text, and models for them."""
    folder = tmp_path_factory.mktemp("spark")
    trees = write_conllu(random_sentences(60, 9)).split("\n\n")
    trees[40] = "1\tbroken"
    (folder / "trees.conllu").write_text("\n\n".join(trees))
    (folder / "text.txt").write_text(TEXT)
    random_parser(tiny_config("swap")).save(folder / "parser", scores={}, data={})
    random_segmenter().save(folder / "segmenter", scores={}, data={})
    package.train_ngram([folder / "text.txt"], folder / "ngram", {"order": 2})
    return folder


def parts_of(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("part-*")))


def test_trees_and_broken_sentences_are_those_of_one_process(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    given = [folder / "trees.conllu", "-m", folder / "parser"]
    one = seqtool("parse", *given, "-o", tmp_path / "one.conllu", "--invalid", tmp_path / "broken")
    result = seqtool("parse", *given, "--engine", "spark", "-o", tmp_path / "out")
    assert (one.code, result.code) == (0, 0), result.stderr
    assert len(list((tmp_path / "out").glob("part-*.conllu"))) > 1
    assert parts_of(tmp_path / "out") == (tmp_path / "one.conllu").read_text()
    assert parts_of(tmp_path / "out" / "_broken") == (tmp_path / "broken").read_text()
    assert "1 broken sentence" in result.stderr

    again = seqtool("parse", *given, "--engine", "spark", "-o", tmp_path / "out")
    assert again.code == 1
    assert again.stderr.startswith(f"error: {tmp_path / 'out'}: exists already\nhint: ")


def test_broken_sentences_go_to_any_file_system(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    given = ["parse", folder / "trees.conllu", "-m", folder / "parser"]
    seqtool(*given, "-o", tmp_path / "one.conllu", "--invalid", tmp_path / "broken")
    on_cluster = ["-o", "viewfs://cluster/data/out", "--invalid", "viewfs://cluster/data/broken"]
    result = seqtool(*given, "--engine", "spark", *on_cluster)
    assert result.code == 0, result.stderr
    assert "written to viewfs://cluster/data/broken, with file and line" in result.stderr
    assert parts_of(CLUSTER / "broken") == (tmp_path / "broken").read_text()
    assert f"{folder / 'trees.conllu'}:" in parts_of(CLUSTER / "broken")
    assert not (CLUSTER / "out/_broken").exists()


def test_tokens_are_rows_that_say_where_they_are(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    given = [folder / "trees.conllu", "-m", folder / "parser", "--skip-invalid"]
    seqtool("parse", *given, "-o", tmp_path / "one.conllu")
    out = tmp_path / "out.parquet"
    result = seqtool("parse", *given, "--engine", "spark", "-o", out)
    assert result.code == 0, result.stderr
    rows = session.read.parquet(str(out)).orderBy("line", "id").collect()
    sentences = read_conllu(tmp_path / "one.conllu", check="tree", skip_invalid=True)
    expected = [
        (sentence.line, *row[:6], int(row[6]), *row[7:])
        for sentence in sentences
        for row in sentence.rows
    ]
    assert [(row.line, *row[3:]) for row in rows] == expected
    assert {row.file for row in rows} == {str(folder / "trees.conllu")}


def test_a_worker_that_is_killed_costs_nothing(session: Any, folder: Path, tmp_path: Path) -> None:
    from seqtool.spark.frames import Work, annotate_files
    from seqtool.spark.workers import Model

    marker = tmp_path / "killed"
    kill, number = os.kill, signal.SIGKILL

    def open_once(paths: Sequence[Path]) -> Any:
        """Open a model, but for the first worker that does."""
        if not marker.exists():
            marker.touch()
            kill(os.getpid(), number)
        return open_models(paths)

    annotation = Annotation("parse", keeps_invalid=False)
    work = Work(annotation, Model((str(folder / "parser"),), open_once))
    trees = [str(folder / "trees.conllu")]
    assert annotate_files(session, trees, work, str(tmp_path / "killed-once")) == 1
    assert marker.exists()
    work = Work(annotation, Model(work.model.paths, open_models))
    assert annotate_files(session, trees, work, str(tmp_path / "quiet")) == 1
    assert parts_of(tmp_path / "killed-once") == parts_of(tmp_path / "quiet") != ""


def test_text_is_segmented_block_by_block(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("".join(f"Paragraph {n} is here. It ends.\n\n" for n in range(200)))
    given = ["segment", text, "--rules"]
    assert seqtool(*given, "-o", tmp_path / "one").code == 0
    result = seqtool(*given, "--engine", "spark", "-o", tmp_path / "out")
    assert result.code == 0, result.stderr

    def lines(text: str) -> list[str]:
        return [line for line in text.splitlines() if "sent_id" not in line]

    found = parts_of(tmp_path / "out")
    assert lines(found) == lines((tmp_path / "one").read_text())
    names = [line for line in found.splitlines() if "sent_id" in line]
    assert len(set(names)) == len(names) == 400


def test_frames_keep_other_columns_and_tell_what_is_wrong(session: Any, folder: Path) -> None:
    (sentence, other) = random_sentences(2, 5, seed=3)
    rows = [(7, write_conllu([sentence, other])), (8, "1\tbroken\n"), (9, "")]
    frame = session.createDataFrame(rows, "key long, text string")
    model = folder / "parser"
    (expected,) = [open_models([model])([sentence, other])]
    found = package.spark.parse(frame, model, is_conllu=True, output="conllu")
    first, second, broken = found.orderBy("key", "sentence").collect()
    assert [first.conllu, second.conllu] == [s.to_conllu() for s in expected.sentences]
    assert (first.key, second.sentence, broken.key) == (7, 2, 8)
    assert broken.error == "line 1: 2 columns, where CoNLL-U has 10"
    assert first.error is None

    texts = session.createDataFrame([(1, "A dog.  It barks.")], "key long, text string")
    tokens = package.spark.segment(texts).collect()
    assert [(row.sentence, row.id, row.form) for row in tokens] == [
        *((1, "1", "A"), (1, "2", "dog"), (1, "3", ".")),
        *((2, "1", "It"), (2, "2", "barks"), (2, "3", ".")),
    ]
    assert tokens[2].misc == "SpacesAfter=\\s\\s"


def test_surprisal_and_perplexity_are_those_of_one_process(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    given = ["eval-ppl", folder / "text.txt", "-m", folder / "ngram", "--json"]
    one = json.loads(seqtool(*given, "--per-token", tmp_path / "one.parquet").stdout)
    given += ["--engine", "spark"]
    assert seqtool(*given, "--per-sentence", tmp_path / "s.parquet").code == 0
    result = seqtool(*given, "--per-token", tmp_path / "t.parquet")
    assert result.code == 0, result.stderr
    found = json.loads(result.stdout)
    for name, value in one.items():
        if name != "seconds" and not name.startswith("true"):
            assert found[name] == (pytest.approx(value) if isinstance(value, float) else value)
    expected = session.read.parquet(str(tmp_path / "one.parquet")).collect()
    rows = session.read.parquet(str(tmp_path / "t.parquet")).collect()
    by_place = sorted(rows, key=lambda row: row.line)  # stable: tokens of a line are in order
    assert [tuple(row[1:]) for row in by_place] == [tuple(row) for row in expected]
    sentences = session.read.parquet(str(tmp_path / "s.parquet"))
    assert sentences.count() == one["sentences"]
    assert set(sentences.columns[:2]) == {"file", "line"}

    frame = session.createDataFrame([(5, "a cat\nthe dog\n"), (6, "a")], "key int, text string")
    scored = package.spark.surprisal(frame, folder / "ngram").collect()
    assert [(row.key, row.sentence, row.token) for row in scored] == [
        *((5, 1, "a"), (5, 1, "cat"), (5, 1, "</s>")),
        *((5, 2, "the"), (5, 2, "dog"), (5, 2, "</s>")),
        *((6, 1, "a"), (6, 1, "</s>")),
    ]
    bits = sum(row.surprisal for row in scored if row.sentence == 1 and row.key == 5)
    alone = package.evaluate_lm(package.load(folder / "ngram"), text="a cat\n")
    assert bits == pytest.approx(-alone.nats / math.log(2))


def test_ngrams_of_a_frame(session: Any) -> None:
    frame = session.createDataFrame([("a b a\nb",), ("a b",)], "text string")
    found = {row.ngram: row["count"] for row in package.spark.count_ngrams(frame, 2).collect()}
    assert found == {"a b": 2, "b a": 1}
    found = {
        row.ngram: row["count"]
        for row in package.spark.count_ngrams(frame, 2, boundaries=True).collect()
    }
    # <s> a b a </s>, <s> b </s>, <s> a b </s>
    assert found == Counter({"<s> a": 2, "a b": 2, "b </s>": 2, "b a": 1, "a </s>": 1, "<s> b": 1})


def ngrams_of(path: Path) -> dict[tuple[str, ...], tuple[float, float]]:
    """Every n-gram of a model, with its log-probability and its backoff weight."""
    model = package.load(path)
    table: BackoffTable = model.table
    words = [*model.tokenizer.vocabulary.symbols, "<s>"]
    found = {}
    for n, level in enumerate(table.levels, start=1):
        num = len(level)
        columns = word_columns(table.levels, n, 0, num) if n > 1 else np.arange(num)[None]
        weights = level.backoffs if len(level.backoffs) else np.zeros(num)
        for ids, log_prob, weight in zip(columns.T, level.log_probs, weights, strict=True):
            found[tuple(words[i] for i in ids)] = float(log_prob), float(weight)
    return found


@pytest.mark.parametrize(
    ("partitions", "settings"),
    [
        (1, {"order": 3, "prune": (0, 0, 1), "vocab": "words.txt"}),
        (3, {"order": 3, "prune_entropy": 0.003}),
        (7, {"order": 2, "smoothing": "kneser-ney"}),
    ],
)
def test_an_ngram_model_is_that_of_one_machine(
    session: Any, tmp_path: Path, partitions: int, settings: dict[str, Any]
) -> None:
    (tmp_path / "words.txt").write_text("the\ndog\nsees\na\n")
    if "vocab" in settings:
        settings = {**settings, "vocab": str(tmp_path / "words.txt")}
    config = NgramConfig(fallback=(0.5, 1.0, 1.5), **settings)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt.gz").write_bytes(gzip.compress(b"a dog\r\nthe a cat\n"))
    (texts / "b.txt").write_text(TEXT)
    trained = package.spark.train_ngram(session, [str(texts)], tmp_path / "spark", config)
    expected = package.train_ngram([texts], tmp_path / "memory", config, engine="memory")
    found, wanted = ngrams_of(tmp_path / "spark"), ngrams_of(tmp_path / "memory")
    assert found.keys() == wanted.keys()
    for ngram, numbers in wanted.items():
        assert found[ngram] == pytest.approx(numbers, abs=1e-6)
    assert trained.statistics == expected.statistics
    assert trained.num_tokens == expected.num_tokens
    assert [path.name for path in tmp_path.iterdir() if "seqtool" in path.name] == []


def test_tables_are_removed_although_spark_goes_on(session: Any, tmp_path: Path) -> None:
    """After Ctrl-C it does, and would write where the tables were."""
    from pyspark import InheritableThread

    begun = tmp_path / "begun"

    def slowly(batches: Iterable[Any]) -> Iterator[Any]:
        begun.touch()
        time.sleep(3)
        yield from batches

    with without_pandas_warning():
        rows = session.range(2, numPartitions=2).mapInArrow(slowly, "id long")

    def write(folder: str) -> None:
        with suppress(Exception):  # that it was stopped
            rows.write.parquet(f"{folder}/table")

    def interrupted(parent: Path) -> None:
        with temporary_folder(session, str(parent)) as folder:
            threads.append(InheritableThread(target=write, args=[folder]))
            threads[0].start()
            while threads[0].is_alive() and not begun.exists():
                time.sleep(0.05)
            raise KeyboardInterrupt

    temp, threads = tmp_path / "temp", list[InheritableThread]()
    temp.mkdir()
    with pytest.raises(KeyboardInterrupt):
        interrupted(temp)
    threads[0].join()
    assert begun.exists()
    assert [*temp.iterdir()] == []


def test_a_text_that_is_not_utf8_is_named_with_its_line(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    lines = [b"a line of words that is whole\n"] * 300
    lines[250] = b"caf\xe9\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(DataError, match="not UTF-8 at byte 4 of the line") as caught:
        package.spark.train_ngram(session, [str(path)], tmp_path / "model", NgramConfig(order=2))
    assert (caught.value.path, caught.value.line) == (str(path), 251)
    assert not (tmp_path / "model").exists()


def test_parquet_and_json_lines_are_texts(
    session: Any, folder: Path, tmp_path: Path, seqtool: Run
) -> None:
    trees = [write_conllu(random_sentences(2, 5, seed)) for seed in range(3)]
    rows = [(trees[0], "a cat\nthe dog\n"), ("1\tbroken\n", None), (trees[2], "a")]
    table = tmp_path / "texts.parquet"
    session.createDataFrame(rows, "conllu string, text string").coalesce(1).write.parquet(
        str(table)
    )
    given = ["parse", table, "-m", folder / "parser", "--engine", "spark", "-o", tmp_path / "out"]
    result = seqtool(*given, "--text-column", "conllu", "--invalid", tmp_path / "broken")
    assert result.code == 0, result.stderr
    parsed = open_models([folder / "parser"])([*read_conllu(trees[0] + trees[2], check="columns")])
    assert parts_of(tmp_path / "out") == write_conllu(parsed.sentences)
    broken = "# line 1: 2 columns, where CoNLL-U has 10\n1\tbroken\n\n"
    assert parts_of(tmp_path / "broken") == broken

    lines = [json.dumps({"text": text}) for _, text in rows if text]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    one = seqtool("eval-ppl", tmp_path / "texts.jsonl", "-m", folder / "ngram", "--json")
    for path in (tmp_path / "texts.jsonl", table):
        found = seqtool("eval-ppl", path, "-m", folder / "ngram", "--engine", "spark", "--json")
        assert found.code == 0, found.stderr
        names = ("sentences", "tokens", "perplexity", "bits_per_byte")
        figures = [[json.loads(run.stdout)[name] for name in names] for run in (one, found)]
        assert figures[1] == pytest.approx(figures[0])
