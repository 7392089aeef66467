"""States as files: what the array holds, and that its words stand beside it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from lm.neural.test_word_states import make
from parsing.encoding.test_encoder import BILSTM
from parsing.parser.test_parser import network_of
from parsing.parser.tiny import make_sentence, random_parser
from parsing.parser.tiny import random_sentences as sentences_to_parse
from parsing.parser.tiny import tiny_config as parser_config
from parsing.tagger.toy import random_tagger, random_treebank
from toy_models import word_tokenizer

from seqtool.analysis.states import open_rows, spans_of, write_states
from seqtool.lm.states import Span
from seqtool.treebank.conllu import write_conllu


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def test_a_language_model(tmp_path: Path) -> None:
    model = make(word_tokenizer(["the", "old", "dog"]))
    lines = ["the old dog", "", 'dog "the"', "old"] * 70  # more than are read together
    text = tmp_path / "x.txt"
    text.write_text("".join(f"{line}\n" for line in lines))
    expected = np.concatenate(model.states(lines))
    told = write_states(model, [str(text)], tmp_path / "states.npy")
    assert told == (420, 6, 280)
    found = np.load(tmp_path / "states.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    rows = read_table(tmp_path / "states.tsv")
    assert [row["row"] for row in rows] == [str(i) for i in range(420)]
    assert list(rows[4].values()) == ["4", "3", "2", '"the"', "4", "9"]
    for row in rows:
        line = lines[int(row["sentence"]) - 1]
        assert line[int(row["start"]) : int(row["end"])] == row["word"]
        assert line.split()[int(row["number"]) - 1] == row["word"]


def test_a_tagger(tmp_path: Path) -> None:
    tagger = random_tagger()
    treebank = random_treebank(20)
    write_conllu(iter(treebank), str(tmp_path / "x.conllu"))
    told = write_states(tagger, [str(tmp_path / "x.conllu")], tmp_path / "x.npy")
    found = np.load(tmp_path / "x.npy")
    size = tagger.config.model.encoder_size
    assert told == (sum(map(len, treebank)), 2 * size, 20) == (*found.shape, 20)
    np.testing.assert_allclose(found, tagger.read(treebank).states, rtol=0, atol=1e-6)
    # the layers are those of the network
    first, last = (tagger.sentence_states(treebank, layer) for layer in (1, 2))
    np.testing.assert_allclose(np.concatenate(last), found, rtol=0, atol=1e-6)
    assert not np.allclose(np.concatenate(first), found, atol=1e-2)
    assert [len(states) for states in first] == [len(sentence) for sentence in treebank]


def test_a_parser(tmp_path: Path) -> None:
    import torch

    parser = random_parser(parser_config(encoder_layers=2, **BILSTM))
    sentences = sentences_to_parse(12, 7)
    write_conllu(iter(sentences), str(tmp_path / "x.conllu"))
    write_states(parser, [str(tmp_path / "x.conllu")], tmp_path / "x.npy")
    found = np.load(tmp_path / "x.npy")
    arrays = parser.encode(sentences)
    parser.prepare()
    vectors = torch.from_numpy(parser.decoder.classifier.products.vectors.copy())
    encoder = network_of(parser).encoder
    begin = 0
    for place, sentence in enumerate(sentences):
        row = int(arrays.tokens[place])
        types = arrays.types[row : row + 1 + len(sentence)]  # ROOT comes first
        lengths = torch.tensor([len(types)])
        first, last = encoder.first_and_last(vectors[torch.from_numpy(types).long()], lengths)
        words = slice(begin, begin + len(sentence))
        np.testing.assert_allclose(found[words], last.detach()[1:], rtol=0, atol=1e-5)
        (of_first,) = parser.sentence_states([sentence], 1)
        np.testing.assert_allclose(of_first, first.detach()[1:], rtol=0, atol=1e-5)
        begin = words.stop
    assert begin == len(found)


def test_words_of_a_treebank_have_places_in_its_text() -> None:
    sentence = make_sentence([("vamos", "V"), ("nos", "P"), ("al", "X"), ("mar", "N"), (".", "Z")])
    sentence.extras = [(0, "1-2\tvámonos\t" + "\t".join("_" * 8))]
    sentence.rows[3][9] = "SpaceAfter=No|X=1"
    text = "vámonos al mar."
    spans = spans_of(sentence)
    assert spans[:2] == [Span("vamos", 0, 7), Span("nos", 0, 7)]
    assert [text[span.start : span.end] for span in spans[2:]] == ["al", "mar", "."]


def test_rows_are_appended_whatever_their_number(tmp_path: Path) -> None:
    for parts in ([3], [0, 2, 0, 5], [1] * 120):
        rows = [
            np.random.default_rng(n).random((num, 3), np.float32) for n, num in enumerate(parts)
        ]
        with open_rows(tmp_path / "x.npy") as write:
            for part in rows:
                write(part)
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.concatenate(rows))
        assert np.load(tmp_path / "x.npy", mmap_mode="r").shape == (sum(parts), 3)
