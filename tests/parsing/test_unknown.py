"""A model says where a text is not of the kind that it learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import make_sentence, random_parser, tiny_config

from seqtool.core.checkpoint import load
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.unknown import LEAST_WORDS, LOOKED_AT, Known, Unknown, unknown_share
from seqtool.treebank.conllu import write_conllu
from seqtool.treebank.sentence import FEATS, UPOS, XPOS, Sentence

Run = Callable[..., Any]
COLUMNS = (1, 3, 4, 5)


def words(*rows: Sequence[str]) -> Sentence:
    """A sentence of words, each of form, UPOS, XPOS and FEATS."""
    return Sentence(
        [],
        [
            [str(number), form, "_", upos, xpos, feats, *["_"] * 4]
            for number, (form, upos, xpos, feats) in enumerate(rows, 1)
        ],
        [],
    )


def known(usual: float | None = None) -> Known:
    types = [
        (("집에", "NOUN", "ncn+jca", "_"), 3),
        (("갔다", "VERB", "pvg+ep+ef", "Tense=Past|Mood=Ind"), 3),
        ((".", "PUNCT", "sf", "_"), 9),
    ]
    lexical = SymbolTable.build(types, ["form", "suffix"], 1, COLUMNS)
    tags = SymbolTable.build(types, ["upos", "xpos", "feats"], 1, COLUMNS)
    return Known.of([lexical, tags], usual)


def test_what_is_known() -> None:
    found = known(0.5)
    assert found.words == {"집에", "갔다", "."}
    assert found.most == 0.75
    assert known().most == 0.8
    assert found.knows(UPOS, "NOUN")
    assert not found.knows(UPOS, "N")
    # a new combination of known morphemes or features is no other tagset
    assert found.knows(XPOS, "ncn+ef")
    assert found.knows(FEATS, "Mood=Ind|Number=Sing")
    assert not found.knows(XPOS, "NN")
    assert not found.knows(FEATS, "Number=Sing")
    assert Known.of([SymbolTable.build([(("X",), 1)], ["upos"], 1, (3,))], None).words is None


def test_counts() -> None:
    unknown = Unknown()
    unknown.add(
        [
            words(
                ("집에", "NOUN", "NNG", "_"), ("House", "N", "NN", "_"), (".", "PUNCT", "sf", "_")
            ),
            words(("1999", "_", "_", "_")),
        ],
        known(),
    )
    assert (unknown.num_seen, unknown.num_words, unknown.num_unknown) == (4, 2, 1)
    assert unknown.num_tagged == {UPOS: 3, XPOS: 3, FEATS: 0}
    assert unknown.tags == {UPOS: {"N": 1}, XPOS: {"NNG": 1, "NN": 1}, FEATS: {}}
    assert unknown_share(["집에", "House", "1999", "A"], known().words or ()) == pytest.approx(
        2 / 3
    )
    assert unknown_share(["1", "."], ()) == 0


def warnings(sentence: Sentence, usual: float | None = None) -> list[str]:
    unknown = Unknown()
    unknown.add([sentence], known(usual))
    return list(unknown.warnings(known(usual)))


def test_another_language() -> None:
    num = LEAST_WORDS
    text = [("house", "NOUN", "_", "_")] * 8 + [("집에", "NOUN", "_", "_")] * 2
    assert warnings(words(*text * num)) == []  # four of five, as many as the least share
    text[8] = text[0]
    assert warnings(words(*text * num)) == [
        "90% of the words are unknown to the model: they are in another language or script than "
        "its treebank, or written in another way"
    ]
    (told,) = warnings(words(*text * num), usual=0.25)
    assert "90% of the words are unknown to the model (25% where it was validated)" in told
    assert warnings(words(*text * num), usual=0.8) == []
    assert warnings(words(*text[:7] * (num // 7))) == []  # too few to tell


def test_another_tagset() -> None:
    num = LEAST_WORDS
    text = [("집에", "NOUN", "ncn", "_")] * 4
    assert warnings(words(*text * num)) == []
    text.append(("집에", "NOUN", "NNG", "_"))
    assert warnings(words(*text * num)) == []  # one of five
    text[0] = ("집에", "NOUN", "NNP", "_")
    assert warnings(words(*text * num)) == [
        "40% of the words have XPOS that the model does not know, such as NNP, NNG: tag them as "
        "its treebank is tagged"
    ]


def test_only_the_beginning_is_looked_at() -> None:
    unknown, later = Unknown(), Unknown()
    sentence = words(*[("집에", "NOUN", "_", "_")] * (LOOKED_AT // 2))
    unknown.add([sentence], known())
    assert not unknown.is_enough
    later.add([sentence] * 9, known())
    assert later.num_seen == LOOKED_AT
    unknown.merge(later)
    assert unknown.num_seen == 3 * LOOKED_AT // 2
    before = unknown.num_unknown
    unknown.merge(later)
    unknown.add([words(("house", "N", "_", "_"))], known())
    assert unknown.num_unknown == before
    assert unknown.num_seen == 3 * LOOKED_AT // 2


def test_the_usual_share_is_kept(tmp_path: Path) -> None:
    parser = random_parser(tiny_config())
    assert parser.known.usual is None
    parser.save(tmp_path / "old", scores={}, data={})
    assert load(tmp_path / "old").known.usual is None
    parser.unknown_share = 0.12345
    parser.save(tmp_path / "new", scores={}, data={"words": 3})
    opened = load(tmp_path / "new")
    assert isinstance(opened, Parser)
    assert opened.known.usual == 0.1235 or opened.known.usual == 0.1234
    assert opened.copy().known.usual == opened.known.usual


@pytest.mark.parametrize("jobs", [1, 2])
def test_parse_warns(seqtool: Run, tmp_path: Path, jobs: int) -> None:
    parser, path = random_parser(tiny_config()), tmp_path / "text.conllu"
    parser.save(tmp_path / "parser", scores={}, data={})
    sentences = [make_sentence([("dog", "X")] * 9 + [("a", "NN")] * 3)] * 200
    path.write_text(write_conllu(sentences), encoding="utf-8")
    command = ["-m", tmp_path / "parser"]
    result = seqtool("parse", path, *command, "--jobs", jobs, "-o", tmp_path / "out.conllu")
    assert result.code == 0
    assert result.stderr.count("warning: ") == 1
    assert "25% of the words have UPOS that the model does not know, such as NN" in result.stderr
    found = seqtool("eval-parser", tmp_path / "out.conllu", *command)
    assert "parser: 25% of the words have UPOS" in found.stderr


def test_training_notes_the_share(seqtool: Run, tmp_path: Path) -> None:
    train = [make_sentence([("a", "X"), ("b", "Y")], [2, 0])] * 30
    dev = [make_sentence([("a", "X"), ("q", "Y"), ("b", "Y"), ("9", "X")], [2, 0, 2, 2])] * 5
    for name, sentences in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.conllu").write_text(write_conllu(sentences), encoding="utf-8")
    for command, *options in (
        ("train-parser", "--preset", "linear", "--fields", "form,upos"),
        ("train-tagger", "--preset", "fast"),
    ):
        output = tmp_path / command
        result = seqtool(
            *(command, tmp_path / "train.conllu", "--dev", tmp_path / "dev.conllu"),
            *("--epochs", "1", "--threads", "1", "-o", output, *options),
        )
        assert result.code == 0, result.stderr
        assert load(output).known.usual == pytest.approx(1 / 3, abs=1e-4)
