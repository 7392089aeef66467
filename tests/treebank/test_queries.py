"""Queries of words and their relations, as a search written by hand answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from browser import browser
from toy_trees import render

import seqtool
from seqtool.core.errors import ConfigError
from seqtool.treebank.sentence import Token

SAMPLE = Path(__file__).parents[2] / "data" / "en" / "valid.conllu"


def has(words: Iterable[Token], *relations: str) -> bool:
    return any(word.deprel.split(":")[0] in relations for word in words)


def above(word: Token) -> list[Token]:
    return [word.head_token, *above(word.head_token)] if word.head_token else []


def before(word: Token) -> list[Token]:
    return word.sentence[: word.number - 1]


def after(word: Token) -> list[Token]:
    return word.sentence[word.number :]


BY_HAND: dict[str, Callable[[Token], bool]] = {
    "upos=VERB > deprel=obj & feats.Case=Acc": lambda w: (
        w.upos == "VERB"
        and any(c.feats.get("Case") == "Acc" and has([c], "obj") for c in w.children)
    ),
    "upos=NOUN|PROPN !> deprel=det|amod": lambda w: (
        w.upos in ("NOUN", "PROPN") and not has(w.children, "det", "amod")
    ),
    "deprel==nsubj < upos=VERB > deprel=det": lambda w: (  # both relations are of the subject
        w.deprel == "nsubj" and above(w)[0].upos == "VERB" and has(w.children, "det")
    ),
    "upos=VERB > (deprel=obj > deprel=amod)": lambda w: (
        w.upos == "VERB" and any(has([c], "obj") and has(c.children, "amod") for c in w.children)
    ),
    "deprel=root >> deprel=nsubj:*": lambda w: (
        has([w], "root")
        and any(d.deprel.startswith("nsubj:") and w in above(d) for d in w.sentence)
    ),
    "upos=DET << deprel=obl": lambda w: w.upos == "DET" and has(above(w), "obl"),
    "upos=ADJ + upos=NOUN": lambda w: w.upos == "ADJ" and after(w)[0].upos == "NOUN",
    "upos=NOUN !- deprel=det": lambda w: w.upos == "NOUN" and not has(before(w)[-1:], "det"),
    "upos=NOUN ++ deprel=obl -- deprel=obl": lambda w: (
        w.upos == "NOUN" and has(after(w), "obl") and has(before(w), "obl")
    ),
    "deprel=root >-- deprel=obl | deprel=advmod": lambda w: (
        has([w], "root") and has((c for c in before(w) if c in w.children), "obl", "advmod")
    ),
    "lemma=s* | feats.Number!=Sing & upos!=PUNCT !> *": lambda w: (
        not w.children
        and (w.lemma[0] == "s" or (w.feats.get("Number") != "Sing" and w.upos != "PUNCT"))
    ),
    "(upos=VERB <+ *) | (upos=AUX <+ upos=VERB)": lambda w: (
        w.upos in ("VERB", "AUX")
        and above(w)[:1] == after(w)[:1] != []
        and "VERB" in (w.upos, after(w)[0].upos)
    ),
}


def test_relations_find_what_a_search_by_hand_finds(tmp_path: Path) -> None:
    sentences = list(seqtool.read_conllu(SAMPLE))
    for query, is_wanted in BY_HAND.items():
        expected = [word for sentence in sentences for word in sentence if is_wanted(word)]
        assert seqtool.filter(sentences, query) == expected, query
        assert expected, query
    few = seqtool.Doc(sentences[:80])
    path = tmp_path / "few.html"
    path.write_text("".join(render(few, "html")), encoding="utf-8")
    with browser(tmp_path) as page:
        page.open(path, 1000, 800)
        for query in BY_HAND:
            expected = [[word.id for word in few[i : i + 1].filter(query)] for i in range(len(few))]
            page.run(f"query.value = '{query}'; search()")
            assert page.run("sections.map((section) => [...section.hits])") == expected, query


@pytest.mark.parametrize(
    ("query", "message", "place"),
    [
        ("upos=VERB > | upos=X", "asks for nothing", 13),
        ("upos=VERB > upo=X", "upo is no column", 13),
        ("upos=X & (upos=A > *", "not closed", 10),
        ("(" * 5000 + "upos=X", "too deep", 51),
        ("(upos=X) upos=Y", "nothing joins 'upos=Y'", 9),
    ],
)
def test_an_error_has_its_place(query: str, message: str, place: int) -> None:
    with pytest.raises(ConfigError, match=rf"{message}.* at character {place} of") as error:
        seqtool.filter([], query)
    assert error.value.hint


def test_signs_may_be_words() -> None:
    words = ["|", "a|b", "(", ":)", ">", "&", "+", "a", "!="]
    text = "".join(f"{i}\t{word}" + "\t_" * 8 + "\n" for i, word in enumerate(words, 1))
    sentence = seqtool.Doc.from_conllu(text)
    for number, word in enumerate(words, 1):
        expected = [2, 8] if word == "a|b" else [number]  # either, and the whole
        assert [found.id for found in sentence.filter(f"form={word}")] == expected, word
        assert [found.id for found in sentence.filter(f"form=={word}")] == [number], word
