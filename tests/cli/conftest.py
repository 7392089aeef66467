"""Tiny models of treebanks that the tests of several commands share, and how errors are judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CommandResult
from parsing.parser.graph.test_decoder import graph_parser
from parsing.parser.tiny import LABELS, random_parser, random_sentences, tiny_config
from parsing.segmenter.tiny_segmenter import random_segmenter
from parsing.tagger.toy import random_tagger

from seqtool.core import checkpoint
from seqtool.core.checkpoint import Header
from seqtool.core.config import to_dict
from seqtool.parsing.pipeline.config import KIND, PipelineConfig
from seqtool.treebank.conllu import read_conllu, write_conllu


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: parser, second and graph (parsers), tagger, and pipeline, which has them all."""
    folder = tmp_path_factory.mktemp("models")
    random_parser(tiny_config()).save(folder / "parser", scores={}, data={})
    random_parser(tiny_config("arc-eager"), seed=1).save(folder / "second", scores={}, data={})
    graph_parser("projective").save(folder / "graph", scores={}, data={})
    random_tagger().save(folder / "tagger", scores={}, data={})
    random_segmenter().save(folder / "pipeline/segmenter", scores={}, data={})
    random_tagger().save(folder / "pipeline/tagger", scores={}, data={})
    random_parser(tiny_config(), LABELS).save(folder / "pipeline/parser", scores={}, data={})
    whole = PipelineConfig(segmenters=1, taggers=1, parsers=1, graphs=0)
    checkpoint.amend(folder / "pipeline", Header(KIND, to_dict(whole), {}), "")
    return folder


@pytest.fixture
def here(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: the models, two treebanks and a gold one of the first, two texts.

    a.conllu and b.conllu have few tags that a parser does not know, so that it does not warn; in
    gold.conllu each word depends on the one before it.
    """
    monkeypatch.chdir(tmp_path)
    for path in models.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for seed, name in enumerate(("a.conllu", "b.conllu")):
        write_conllu(random_sentences(30, 9, seed, "XXXYYYZ"), tmp_path / name)
    gold = list(read_conllu("a.conllu", check="columns"))
    for sentence in gold:
        sentence.set_tree(range(len(sentence)), ["root", *["obj"] * (len(sentence) - 1)])
    write_conllu(gold, tmp_path / "gold.conllu")
    (tmp_path / "letter.txt").write_text("The dog sleeps. It dreams.\n\nA cat sees it!\n" * 4)
    (tmp_path / "more.txt").write_text("# sent_id = 7\n\nIt barks. It ends.\n\n" * 9)
    return tmp_path


@pytest.fixture
def refused(
    seqtool: Callable[..., CommandResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Run `seqtool TYPED` in `tmp_path`, where it ends with two lines and changes no file.

    The word stands in the first line; the second one, the hint, is returned.
    """
    monkeypatch.chdir(tmp_path)

    def files() -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    def run(typed: str, word: str = "") -> str:
        before = files()
        result = seqtool(*typed.split())
        assert (result.code, result.stdout) == (1, ""), result.stderr
        # it may say first which input it takes that nobody named
        error, hint = (line for line in result.stderr.splitlines() if not line.startswith("no "))
        assert error.startswith("error: ")
        assert word in error
        assert hint.startswith("hint: ")
        assert files() == before
        return hint

    return run
