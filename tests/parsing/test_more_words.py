"""Words that a treebank has not: what their vectors say of them is what models do with them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ModelError
from seqtool.parsing.encoding import pretrained
from seqtool.parsing.encoding.pretrained import read_rows
from seqtool.parsing.model import LEXICAL
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.model import MultiwordChooser, Pipeline
from seqtool.parsing.tagger.config import TaggerConfig
from seqtool.parsing.tagger.train import train_tagger
from seqtool.treebank.sentence import Sentence

WIDTH = 4
KEPT = 700  # words of the file that models keep; those behind are new to them
TAGGER = {
    "model": {
        "lexical_size": 6, "character_size": 2, "num_filters": 2, "encoder_size": 8,
        "encoder_layers": 1, "lemma_size": 4,
    },
    "learning": {"batch_words": 32},
    "training": {"epochs": 10, "learning_rate": 0.03, "precision": "float32"},
}  # fmt: skip
PARSER = {
    "model": {"fields": ["form"], "lexical_size": 6, "tag_size": 2, "hidden_size": 16,
              "label_size": 2},
    "learning": {"batch_size": 32, "averaging": 0.9},
    "training": {"epochs": 8, "learning_rate": 0.02, "precision": "float32"},
}  # fmt: skip


def words_of(num: int, seed: int) -> list[str]:
    """Letters that tell nothing."""
    chooser = random.Random(seed)
    return ["".join(chooser.choices("abcdefghij", k=6)) for _ in range(num)]


NOUNS, VERBS, OTHERS = words_of(150, 1), words_of(150, 2), words_of(KEPT - 300, 3)
ROWS = dict(zip(OTHERS, np.random.default_rng(0).normal(size=(len(OTHERS), WIDTH)), strict=True))


def write_vectors(path: Path, new: Mapping[str, float]) -> Path:
    """Write vectors whose first number is 2 for nouns and -2 for verbs; new words stand last."""
    rng = np.random.default_rng(4)
    rows = {word: [2.0, *rng.normal(0, 0.5, WIDTH - 1)] for word in NOUNS}
    rows |= {word: [-2.0, *rng.normal(0, 0.5, WIDTH - 1)] for word in VERBS}
    rows |= {word: [*row] for word, row in ROWS.items()}
    rows |= {word: [first, 0.0, 0.0, 0.0] for word, first in new.items()}
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items()))
    return path


def sentence(pair: tuple[str, str], verb: int) -> Sentence:
    """Return two words: a verb, and its subject before or behind it."""
    rows = []
    for place, form in enumerate(pair):
        is_verb = place == verb
        head, deprel = ("0", "root") if is_verb else (str(verb + 1), "nsubj")
        upos = "VERB" if is_verb else "NOUN"
        rows.append([str(place + 1), form, form, upos, "_", "_", head, deprel, "_", "_"])
    return Sentence([], rows, [])


def write_treebank(path: Path) -> Path:
    chooser = random.Random(5)
    parts = []
    for _ in range(300):
        noun, verb, place = chooser.choice(NOUNS), chooser.choice(VERBS), chooser.randrange(2)
        parts.append(sentence((verb, noun) if place == 0 else (noun, verb), place).to_conllu())
    path.write_text("".join(parts))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tagger and a parser that read the first words of a file of vectors."""
    folder = tmp_path_factory.mktemp("words")
    given: dict[str, Any] = {
        "embeddings": write_vectors(folder / "vectors.txt", {"acegig": 2.0, "bdfhjh": -2.0}),
        "device": "cpu",
        "progress": False,
    }
    treebank = write_treebank(folder / "train.conllu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "MAX_VECTORS", KEPT)
        train_tagger(treebank, folder / "tagger", from_dict(TaggerConfig, TAGGER), **given)
        train_parser(treebank, folder / "parser", from_dict(ParserConfig, PARSER), **given)
    return folder


def open_both(folder: Path) -> Pipeline:
    """Return tagger and parser as a pipeline, which is given sentences and splits no text."""
    segmenter: Any = None
    tagger, parser = checkpoint.load(folder / "tagger"), checkpoint.load(folder / "parser")
    return Pipeline(segmenter, tagger, parser, MultiwordChooser(tagger, segmenter))


def heads(pipeline: Any, *forms: str) -> list[int]:
    """Return the head of each word."""
    blank = ["_"] * 8
    rows = [[str(i), form, *blank] for i, form in enumerate(forms, 1)]
    (parsed,) = pipeline.parse_stream([Sentence([], rows, [])])
    return [int(row[6]) for row in parsed.rows]


def test_words_beyond_those_kept_are_what_their_vectors_say(folder: Path, tmp_path: Path) -> None:
    pipeline = open_both(folder)
    turned = write_vectors(tmp_path / "turned.txt", {"acegig": -2.0, "bdfhjh": 2.0})
    known = heads(pipeline, NOUNS[0], VERBS[0]), heads(pipeline, VERBS[0], NOUNS[0])
    assert known == ([2, 0], [0, 1])
    for file, (noun, verb) in (
        (folder / "vectors.txt", ("acegig", "bdfhjh")),
        (turned, ("bdfhjh", "acegig")),
    ):
        grown = pipeline.with_words(read_rows(file, 2000))
        assert heads(grown, noun, verb) == known[0]
        assert heads(grown, verb, noun) == known[1]
        assert heads(grown, NOUNS[1], VERBS[1]) == heads(pipeline, NOUNS[1], VERBS[1])
        assert grown.parser.calibrations == pipeline.parser.calibrations != {}


def test_new_rows_are_the_same_image_as_the_old_ones(folder: Path, tmp_path: Path) -> None:
    mean = (ROWS[OTHERS[0]] + 2 * ROWS[OTHERS[1]]) / 3
    file = write_vectors(tmp_path / "more.txt", {})
    file.write_text(file.read_text() + f"zz {' '.join(map(str, mean))}\n")
    pipeline = open_both(folder)
    grown = pipeline.with_words(read_rows(file, 2000))
    for before, after in ((pipeline.tagger, grown.tagger), (pipeline.parser, grown.parser)):
        old, new = (
            model.forms.symbols if hasattr(model, "forms") else model.types.lexical
            for model in (before, after)
        )
        rows = after.weights[LEXICAL]
        ids = new.ids_of("form")
        first, second = (rows[ids[word]] for word in OTHERS[:2])
        np.testing.assert_allclose(rows[ids["zz"]], (first + 2 * second) / 3, atol=1e-6)
        # all others stay what they were
        for group, symbols in old.groups.items():
            theirs = old.ids_of(group)
            now = new.ids_of(group)
            places = [theirs[symbol] for symbol in symbols], [now[symbol] for symbol in symbols]
            np.testing.assert_array_equal(rows[places[1]], before.weights[LEXICAL][places[0]])
            np.testing.assert_array_equal(
                rows[new.range_of(group)[0]], before.weights[LEXICAL][old.range_of(group)[0]]
            )
        assert len(rows) == len(before.weights[LEXICAL]) + 1
        assert new.num_symbols == len(rows)


def test_all_members_and_the_chooser_of_multiwords_get_them(folder: Path) -> None:
    pipeline = open_both(folder)
    tagger = pipeline.tagger.ensemble([pipeline.tagger])
    parser = pipeline.parser.ensemble([pipeline.parser])
    whole = Pipeline(pipeline.segmenter, tagger, parser, pipeline.multiword)
    grown = whole.with_words(read_rows(folder / "vectors.txt", 2000))
    assert [len(part.members) for part in (grown.tagger, grown.parser)] == [2, 2]
    assert grown.multiword is not None
    for model in (*grown.tagger.members, grown.multiword._tagger):
        assert "acegig" in model.forms.symbols.ids_of("form")
    for member in grown.parser.members:
        assert "acegig" in member.types.lexical.ids_of("form")


def test_parsers_without_vectors_of_words_vote_as_they_are(folder: Path, tmp_path: Path) -> None:
    treebank = folder / "train.conllu"
    train_parser(treebank, tmp_path / "linear", "linear", device="cpu", progress=False)
    pipeline, linear = open_both(folder), checkpoint.load(tmp_path / "linear")
    vectors = read_rows(folder / "vectors.txt", 2000)
    for parsers in ([pipeline.parser, linear], [linear, pipeline.parser]):
        whole = Pipeline(pipeline.segmenter, pipeline.tagger, Vote(parsers), pipeline.multiword)
        grown = whole.with_words(vectors).parser
        assert isinstance(grown, Vote)
        reader = grown.parsers[parsers.index(pipeline.parser)]
        assert "acegig" in reader.types.lexical.ids_of("form")
        assert grown.parsers[parsers.index(linear)] is linear
    with pytest.raises(ModelError, match="was not trained with these word vectors"):
        Vote([linear, linear]).with_words(vectors)


def test_a_grown_model_can_be_saved(folder: Path, tmp_path: Path) -> None:
    grown = checkpoint.load(folder / "tagger").with_words(read_rows(folder / "vectors.txt", 2000))
    grown.save(tmp_path / "tagger", scores={}, data={})
    again = checkpoint.load(tmp_path / "tagger")
    assert again.forms.symbols == grown.forms.symbols
    np.testing.assert_array_equal(again.weights[LEXICAL], grown.weights[LEXICAL])


def test_other_vectors_are_refused(folder: Path, tmp_path: Path, seqtool: Any) -> None:
    file = tmp_path / "other.txt"
    rng = np.random.default_rng(9)
    lines = [f"{word} {' '.join(map(str, rng.normal(size=WIDTH)))}\n" for word in OTHERS]
    file.write_text("".join(lines))
    pipeline = open_both(folder)
    for model in (pipeline, pipeline.tagger, pipeline.parser):
        with pytest.raises(ModelError, match="was not trained with these word vectors"):
            model.with_words(read_rows(file, 2000))
    # as many words as numbers: anything would fit
    file.write_text("".join(lines[:WIDTH]))
    with pytest.raises(ModelError, match="was not trained with"):
        pipeline.tagger.with_words(read_rows(file, 2000))
    command = ["parse", str(folder / "train.conllu"), "-m", str(folder / "parser")]
    run = seqtool(*command, "--embeddings", str(file))
    assert run.code == 1
    assert "parser: the parser was not trained with these word vectors" in run.stderr


def test_the_command_takes_them(folder: Path, tmp_path: Path, seqtool: Any) -> None:
    pairs = [("acegig", "bdfhjh"), ("bdfhjh", "acegig")]
    given = tmp_path / "given.conllu"
    given.write_text("".join(sentence(pair, 0).to_conllu() for pair in pairs))
    for command, model in (("tag", "tagger"), ("parse", "parser")):
        options = ("-m", str(folder / model), "--embeddings", str(folder / "vectors.txt"))
        output = tmp_path / f"{model}.conllu"
        run = seqtool(command, str(given), *options, "-o", str(output))
        assert run.code == 0, run.stderr
    rows = [line.split("\t") for line in output.read_text().splitlines() if "\t" in line]
    assert [row[6] for row in rows] == ["2", "0", "0", "1"]
