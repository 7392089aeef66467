"""The tasks that are made of the sample's trees: their answers, as far as they can be read off."""

from __future__ import annotations

import re
from itertools import islice

import tasks

from seqtool.treebank.conllu import read_conllu


def test_opinions_say_what_their_words_do() -> None:
    found = tasks.opinions("valid")
    assert len(found) > 300
    assert len(set(found)) > 0.9 * len(found)
    telling = tasks.PRAISE | tasks.BLAME
    for opinion in found:
        words = re.findall(r"n't|\w+", re.sub("n't", " n't", opinion.text).lower())
        met = telling.intersection(words)
        assert met, opinion.text
        if len(met) == 1 and not {"not", "n't"}.intersection(words):
            assert opinion.label == ("good" if met <= tasks.PRAISE else "bad"), opinion.text
    assert 0.4 < sum(opinion.label == "good" for opinion in found) / len(found) < 0.6
    assert tasks.best_accuracy(found) == 100.0
    by_hand = {opinion.text: opinion.label for opinion in tasks.opinions("train")}
    denied = [text for text in by_hand if re.fullmatch(r"The \w+ (is|are|was|were)n't \w+\.", text)]
    assert len(denied) > 5
    for text in denied:
        praises = text.removesuffix(".").rpartition(" ")[2] in tasks.PRAISE
        assert by_hand[text] == ("bad" if praises else "good"), text


def test_a_share_of_opinions_is_turned_round() -> None:
    plain, turned = tasks.opinions("test"), tasks.opinions("test", turned=0.2)
    assert tasks.opinions("test", turned=0.2) == turned
    best = tasks.best_accuracy(turned)
    assert 75 < best < 85
    assert best == 100 * sum(not each.is_turned for each in turned) / len(turned)
    assert len(plain) == len(turned)


def test_names_are_persons_and_cities() -> None:
    text = tasks.conllu(islice(tasks.names("valid"), 600))
    labels: dict[str, set[str]] = {}
    for sentence in read_conllu(text):
        before = "O"
        for token in sentence:
            label = token.misc.get("NER", "O")
            assert (label != "O") == (token.upos == "PROPN")
            assert not label.startswith("I-") or before == "B-PER"
            labels.setdefault(token.form, set()).add(label)
            before = label
    assert labels["London"] == {"B-LOC"}
    assert labels["Anna"] == {"B-PER"}
    assert labels["Berg"] == {"I-PER"}
