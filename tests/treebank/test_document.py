"""Documents, sentences as sequences of tokens, what they are turned into, plain layouts."""

from __future__ import annotations

import re
from pathlib import Path

import conllu
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import sentence_texts

import seqtool
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import MAX_LINE, limit_lines
from seqtool.treebank.layouts import Layout, horizontal, read_layout, vertical
from seqtool.treebank.queries import Query, matches
from seqtool.treebank.sentence import FORM, MISC, Sentence

# "vámonos al mar": two multiword tokens, an empty node, an enhanced graph
LINES = """\
# sent_id = s1
# text = vámonos al mar.
# newpar
1-2	vámonos	_	_	_	_	_	_	_	_
1	vamos	ir	VERB	V	Mood=Imp|Number=Plur	0	root	0:root	_
2	nos	nosotros	PRON	P	Case=Acc|Number=Plur	1	obj	1:obj|2.1:nsubj	Gloss=us
2.1	E	e	VERB	_	_	_	_	1:conj	_
3-4	al	_	_	_	_	_	_	_	_
3	a	a	ADP	_	_	5	case	5:case	_
4	el	el	DET	_	Definite=Def	5	det	5:det	_
5	mar	mar	NOUN	N	Number=Sing	1	obl	1:obl:a	SpaceAfter=No
6	.	.	PUNCT	_	_	1	punct	1:punct	SpacesAfter=\\n
"""
OTHER = "1\t_\t_\tSYM\t_\t_\t0\troot\t_\t_\n"


@pytest.fixture
def doc() -> seqtool.Doc:
    return seqtool.Doc.from_conllu(f"{LINES}\n{OTHER}\n")


def test_words_of_a_sentence(doc: seqtool.Doc) -> None:
    sentence = doc[0]
    assert [token.form for token in sentence] == ["vamos", "nos", "a", "el", "mar", "."]
    assert [token.head for token in sentence] == [0, 1, 5, 5, 1, 1]
    mar = sentence[4]
    assert (mar.id, mar.lemma, mar.upos, mar.xpos, mar.deprel) == (5, "mar", "NOUN", "N", "obl")
    assert mar.feats == {"Number": "Sing"}
    assert sentence[1].misc["Gloss"] == "us"
    assert mar.head_token == sentence[0] == sentence.root
    assert sentence[0].head_token is None
    assert [child.form for child in mar.children] == ["a", "el"]
    assert [token.form for token in mar.subtree] == ["a", "el", "mar"]
    assert sentence[0].subtree == list(sentence)
    assert sentence[1].deps == [(1, "obj"), ("2.1", "nsubj")]
    assert mar.deps == [(1, "obl:a")]
    assert [token.form for token in sentence[-2:]] == ["mar", "."]
    assert mar.sentence is sentence
    assert str(mar) == "mar"
    with pytest.raises(IndexError):
        sentence[6]
    with pytest.raises(KeyError):
        mar.feats["Case"]
    assert len({*sentence, sentence[0]}) == 6


def test_multiword_tokens_and_empty_nodes(doc: seqtool.Doc) -> None:
    sentence = doc[0]
    assert [token.form for token in sentence.tokens] == ["vámonos", "al", "mar", "."]
    first, second, word, _ = sentence.tokens
    assert (first.id, first.is_multiword, word.is_multiword) == ("1-2", True, False)
    assert [part.form for part in second.words] == ["a", "el"]
    assert word.words == [word]
    assert [part.form for part in first.subtree] == ["vamos", "nos", "a", "el", "mar", "."]
    assert second.subtree == second.words
    (empty,) = sentence.empty_nodes
    assert (empty.id, empty.form, empty.is_empty, empty.head, empty.start) == (
        "2.1", "E", True, None, None,
    )  # fmt: skip
    assert empty.deps == [(1, "conj")]
    assert empty.children == empty.subtree == []


def test_what_a_sentence_says_of_itself(doc: seqtool.Doc) -> None:
    assert doc[0].metadata == {"sent_id": "s1", "text": "vámonos al mar.", "newpar": None}
    assert (doc[0].sent_id, doc[1].sent_id) == ("s1", "")
    assert (doc[0].text, doc[1].text) == ("vámonos al mar.", "_")


def test_places_in_the_text(doc: seqtool.Doc) -> None:
    assert doc.text == "vámonos al mar.\n_ "
    assert [(token.start, token.end) for token in doc.words] == [
        *[(0, 7)] * 2, *[(8, 10)] * 2, (11, 14), (14, 15), (16, 17),
    ]  # fmt: skip
    doc[0].rows[4][MISC] = "SpaceAfter=No|TokenRange=111:114"
    assert (doc[0][4].start, doc[0][4].end) == (111, 114)
    assert doc[0][5].start == 14


def test_what_is_set_is_written(doc: seqtool.Doc) -> None:
    sentence = doc[0]
    token = sentence[4]
    token.upos, token.head, token.lemma = "PROPN", 2, "Mar"
    token.feats["Gender"] = "Masc"
    token.misc["Gloss"] = "sea"
    del sentence[1].misc["Gloss"]
    sentence.tokens[1].form = "AL"
    sentence.empty_nodes[0].misc["X"] = ""
    lines = sentence.to_conllu().split("\n")
    assert "5\tmar\tMar\tPROPN\tN\tGender=Masc|Number=Sing\t2\tobl\t1:obl:a\t" in lines[10]
    assert lines[10].endswith("\tSpaceAfter=No|Gloss=sea")
    assert lines[5].endswith("\t_")
    assert lines[7].startswith("3-4\tAL\t")
    assert lines[6].endswith("\t1:conj\tX")
    for attribute, value in (
        *(("form", ""), ("form", " "), ("lemma", "a\tb"), ("head", 7)),
        *(("form", "\udce9"), ("lemma", "\udce9"), ("upos", "\udce9")),  # half a character
    ):
        with pytest.raises(ValueError, match="cannot be"):
            setattr(token, attribute, value)
    with pytest.raises(ValueError, match="cannot stand"):
        token.feats["A|B"] = "c"
    with pytest.raises(KeyError):
        del token.feats["Nothing"]
    (sentence,) = seqtool.read_conllu("# a\n1\ta\t_\t_\t_\t_\tx\t_\t_\t_\n", check="columns")
    with pytest.raises(DataError, match=r"<text>:2: token 1 has head 'x'"):
        sentence[0].head  # noqa: B018


ITEM = st.from_regex(r"[A-Za-z]{1,3}(=[a-z0-9_]{0,2})?", fullmatch=True)


@given(st.lists(ITEM, max_size=5), st.from_regex(r"[A-Za-z]{1,3}", fullmatch=True))
def test_features_are_a_mapping_that_changes_one_item(items: list[str], name: str) -> None:
    (token,) = Sentence([], [["1", "a", *["_"] * 8]], [])
    token.set_column(MISC, "|".join(items) or "_")
    expected = dict(item.partition("=")[::2] for item in items)
    assert dict(token.misc) == expected
    assert len(token.misc) == len(expected)
    token.misc[name] = "new"
    assert dict(token.misc) == expected | {name: "new"}
    del token.misc[name]
    others = [item for item in items if item.partition("=")[0] != name]
    assert token.columns[MISC] == ("|".join(others) or "_")  # as they were, in their order


@given(st.lists(sentence_texts(trees=False), min_size=1, max_size=3))
def test_documents_are_whole_again_and_their_words_are_where_they_say(texts: list[str]) -> None:
    doc = seqtool.Doc.from_conllu("\n".join(texts).encode())
    assert doc.to_conllu() == "\n".join(texts) + "\n"
    assert seqtool.write_conllu(doc) == doc.to_conllu()
    for sentence in doc:
        for _, _, row in sentence.surface_rows():
            # what Hypothesis puts into MISC seldom speaks of spaces
            assert row[FORM] in doc.text or "Space" in row[MISC]
        for token in sentence:
            if "Token" not in token.columns[MISC] and not sentence.extras:
                assert doc.text[token.start : token.end] == token.form


TRICKY = [LINES, OTHER, "1\ta\t_\tX\tx\tA=b|C\t0\troot\t0:root|1:a:b\tD=_|E\n"]


def test_token_lists_are_those_of_conllu(shared_data: Path) -> None:
    texts = list(TRICKY)
    for path in (shared_data / "ewt" / "en_ewt-ud-dev.conllu", *shared_data.glob("fr*/*dev*")):
        texts.append("\n\n".join(path.read_text(encoding="utf-8").split("\n\n")[:150]) + "\n\n")
    for text in texts:
        doc = seqtool.Doc.from_conllu(text)
        ours, theirs = doc.to_tokenlists(), conllu.parse(text)
        assert [*map(list, ours)] == [*map(list, theirs)]
        assert type(ours) is conllu.SentenceList
        assert ours[0].metadata == theirs[0].metadata
        assert seqtool.Doc.from_tokenlists(ours) == doc
    doc = seqtool.Doc.from_conllu("1\ta\t_\t_\t_\t_\tx\t_\t_\t_\n")
    with pytest.raises(DataError, match=r"<text>:1: a token cannot be a conllu.Token"):
        doc.to_tokenlists()


def test_token_lists_of_other_makers() -> None:
    tokens = [
        {"form": "Hi", "upos": "INTJ", "feats": {"A": "b"}, "head": 0, "PARSEME:MWE": "1:LVC"},
        {"form": "you", "head": 1, "misc": {"X": None}, "PARSEME:MWE": "*"},
    ]
    doc = seqtool.Doc.from_tokenlists([conllu.TokenList([conllu.Token(t) for t in tokens])])
    assert doc.to_conllu() == (
        "1\tHi\t_\tINTJ\t_\tA=b\t0\t_\t_\tPARSEME:MWE=1:LVC\n2\tyou\t_\t_\t_\t_\t1\t_\t_\t"
        "X=_|PARSEME:MWE=*\n\n"
    )
    for bad, message in (
        ([{"form": ""}], "FORM is empty"),
        ([{"form": "a\nb"}], "holds a tab or line end"),
        ([{"form": "a\udce9b"}], "half a pair"),
        ([{"id": 2, "form": "a"}], "ID '2' where 1 is expected"),
        ([{"form": "a", "misc": {"A": [1]}}], "non-serializable"),
        ([], "TokenList 1"),
    ):
        with pytest.raises(DataError, match=message):
            seqtool.Doc.from_tokenlists([conllu.TokenList([conllu.Token(t) for t in bad])])


QUERIES = [
    {"deprel": "obl"},
    {"upos": "PRON", "feats__Case": "Acc"},
    {"feats__Number": "Plur"},
    {"feats__Number": None},
    {"xpos": None},
    {"head": 1, "deprel": lambda deprel: deprel.startswith("o")},
    {"id": 3},
    {"misc__Gloss": "us"},
]


@pytest.mark.parametrize("query", QUERIES)
def test_queries_are_those_of_conllu(query: dict[str, object], doc: seqtool.Doc) -> None:
    expected = [
        (number, token["id"])
        for number, sentence in enumerate(doc.to_tokenlists())
        for token in sentence.filter(**query)
        if isinstance(token["id"], int)
    ]
    found = doc.filter(**query)
    assert found == seqtool.filter(list(doc), **query)
    numbers = {id(sentence): number for number, sentence in enumerate(doc)}
    assert [(numbers[id(token.sentence)], token.id) for token in found] == expected
    assert found or query == {"xpos": 1}


def test_a_query_of_no_column_is_refused(doc: seqtool.Doc) -> None:
    for name in ("deprl", "feats", "form__x"):
        with pytest.raises(ConfigError, match="no column"):
            doc.filter(**{name: "x"})
    with pytest.raises(ConfigError, match="twice"):
        doc.filter("upos=A", "UPOS=B")
    assert Query(["UPOS=_", "head=3", "feats.Case=a=b"]).to_json() == {
        "upos": None, "head": 3, "feats__Case": "a=b",
    }  # fmt: skip


def test_a_concordance(doc: seqtool.Doc) -> None:
    found = [match for s in doc for match in matches(s, Query([], {"upos": "DET"}))]
    assert [(m.before, m.written, m.after, m.place) for m in found] == [
        ("vámonos ", "al", " mar.", "s1")
    ]
    (match,) = matches(doc[0], Query(["upos=PUNCT"]))
    assert match[1:] == ("vámonos al mar", ".", "")
    assert match.to_json()["line"] == 12


def test_rows_and_tables(doc: seqtool.Doc) -> None:
    rows = doc.to_rows()
    assert [row["form"] for row in rows] == ["vamos", "nos", "a", "el", "mar", ".", "_"]
    assert rows[2]["multiword"] == "al"
    assert (rows[4]["multiword"], rows[4]["head"], rows[4]["sent_id"]) == (None, 1, "s1")
    assert (rows[6]["sentence"], rows[6]["lemma"], rows[6]["upos"]) == (2, "_", "SYM")
    assert rows[6]["xpos"] is None
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: make judges")
    table = doc.to_df()
    assert list(table.columns) == list(rows[0])
    assert table["head"].tolist() == [row["head"] for row in rows]
    assert table[table.upos == "DET"].form.tolist() == ["el"]
    missing = [value for name in table for value in table[name] if pandas.isna(value)]
    assert {*map(repr, missing)} == {"<NA>"}
    assert len(missing) == sum([*row.values()].count(None) for row in rows)
    assert list(seqtool.Doc().to_df().columns) == list(rows[0])
    assert seqtool.Doc().to_df().dtypes.equals(table.dtypes)
    polars = pytest.importorskip("polars", reason="polars is not installed: make judges")
    assert polars.from_pandas(table).to_dicts() == rows


def test_parts_of_a_document_are_copies(doc: seqtool.Doc) -> None:
    part = doc[1:]
    assert (len(part), part[0][0].start, doc[1][0].start) == (1, 0, 16)
    part[0][0].lemma = "x"
    assert doc[1][0].lemma == "_"
    assert doc == seqtool.Doc.from_conllu(doc.to_conllu())
    assert (doc == part, doc == 1) == (False, False)


def test_a_notebook_shows_the_first_trees() -> None:
    html = seqtool.Doc.from_conllu((OTHER + "\n") * 30)._repr_html_()
    assert html.count("<svg") + int(html.rpartition(" more sentences")[0].split(">")[-1]) == 30
    rules = html.partition("<style>")[2].partition("</style>")[0]
    rules = re.sub(r"@media [^{]*\{", "", rules)  # rules that hold on some screens only
    selectors = ", ".join(re.findall(r"([^{}]+)\{[^{}]*\}", rules)).split(", ")
    assert all(selector.strip(" \n}").startswith(".seqtool-tree") for selector in selectors)
    html = Sentence([], [[str(i), "<b>", *["_"] * 8] for i in range(1, 101)], [])._repr_html_()
    assert html.count("&lt;b&gt;") > 100  # of the text, and rows
    assert "<b>" not in html
    assert "<svg" not in seqtool.Doc()._repr_html_()


ASKED = [  # (FORM, LEMMA, FEATS, HEAD, DEPREL, DEPS) of words, and which of them are found
    (
        ["it _ _ 2 nsubj 2:nsubj|3:nsubj", "is be _ 0 root 0:root", "_ _ _ 2 obj _"],
        {
            "lemma=_": [1, 3], "form=_": [3], "deps=_": [3], "deps=0:root": [2],
            "deps=3:nsubj": [1],  # one of two enhanced arcs
            "deps=2:nsubj|3:nsubj": [1], "deps=nsubj": [], "xpos=_": [1, 2, 3],
            "feats.Case=_": [1, 2, 3], "head=2": [1, 3], "id=3": [3],
        },
    ),
    (
        ["* _ _ 2 obj 2:obj:x|3:dep", "= _ A=Bc 0 root 0:root", "obj _ _ 2 obj:agent 2:obj",
         "ob _ _ 2 object _"],
        {
            "deprel=obj": [1, 3], "deprel==obj": [1], "deprel=obj*": [1, 3, 4],
            "deprel=*agent": [3], "deprel==obj*": [], "deprel=obj:agent": [3],
            "deps=2:obj": [1, 3], "deps==2:obj": [3], "deps=2*dep": [], "deps=*:dep": [1],
            "form=ob*": [3, 4], "form=*": [1, 2, 3, 4], "form==*": [1], "form==": [2],
            "form=ob": [4], "feats.A=B*": [2],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "queries"), ASKED)
def test_what_is_asked_for(words: list[str], queries: dict[str, list[int]]) -> None:
    rows = []
    for number, word in enumerate(words, 1):
        form, lemma, feats, *rest = word.split()
        rows.append([str(number), form, lemma, "X", "_", feats, *rest, "_"])
    sentence = Sentence([], rows, [])
    for text, expected in queries.items():
        assert [t.id for t in seqtool.filter(sentence, text)] == expected, text
        name, _, value = text.replace(".", "__").partition("=")
        if not {"*", "="} & {*value} and "obj" not in value:  # the same from Python, as it is typed
            assert [t.id for t in seqtool.filter(sentence, **{name: value})] == expected, text
    # from Python, a relation is that alone
    expected = [token.id for token in sentence if token.deprel == "obj"]
    assert [token.id for token in seqtool.filter(sentence, deprel="obj")] == expected


WORD = st.text(st.sampled_from("ab#1-.\u00e9\uac00"), min_size=1, max_size=4)
WORDS = st.lists(st.lists(st.tuples(WORD, st.booleans()), min_size=1, max_size=4), max_size=4)


def forms_of(text: str, layout: Layout) -> list[list[str]]:
    return [sentence.column(FORM) for sentence in read_layout(text.split("\n"), layout)]


def test_a_sentence_a_line() -> None:
    text = "The dog\u00a0house  barks .\nHi !\r\n\n\nBye\n"
    first, second, third = read_layout(text.split("\n"), "horizontal", document="a.txt")
    assert first.to_conllu() == (
        "# newdoc id = a.txt\n# newpar\n# sent_id = 1\n# text = The dog house barks .\n"
        "1\tThe\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdog house\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "3\tbarks\t_\t_\t_\t_\t_\t_\t_\t_\n4\t.\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    )
    assert second.comments == ["# sent_id = 2", "# text = Hi !"]
    assert third.comments == ["# newpar", "# sent_id = 3", "# text = Bye"]


def test_a_word_a_line() -> None:
    text = "\nThe\tDET\tx\ndog house\n#\n\nHi\n\n\n\nBye"
    first, second, third = read_layout(text.split("\n"), "vertical", first_number=7)
    assert first.comments == ["# newdoc", "# newpar", "# sent_id = 7", "# text = The dog house #"]
    assert first.column(FORM) == ["The", "dog house", "#"]
    assert second.comments == ["# sent_id = 8", "# text = Hi"]
    assert third.comments == ["# newpar", "# sent_id = 9", "# text = Bye"]


def test_a_later_part_of_a_document_has_no_beginning() -> None:
    for layout in ("horizontal", "vertical"):
        (found,) = read_layout(["a"], layout, first_number=3, goes_on=True)
        assert found.comments == ["# sent_id = 3", "# text = a"]


def test_words_without_end_are_refused() -> None:
    limit_lines(100)
    try:
        with pytest.raises(DataError, match="no empty line in 101 characters of words"):
            list(read_layout(["a"] * 200, "vertical"))
    finally:
        limit_lines(MAX_LINE)


@given(WORDS)
def test_what_is_written_is_read_again_as_udpipe_reads_it(
    sentences: list[list[tuple[str, bool]]],
) -> None:
    udpipe = pytest.importorskip("ufal.udpipe", reason="UDPipe is not installed: make judges")
    # with a blank inside, or without
    wanted = [[f"{word} x" if blank else word for word, blank in each] for each in sentences]
    lines = "".join(" ".join(each).replace(" x", "\u00a0x") + "\n" for each in wanted)
    for layout, write in (("horizontal", horizontal), ("vertical", vertical)):
        found = list(read_layout(lines.split("\n"), "horizontal"))
        text = "".join(map(write, found))
        assert forms_of(text, layout) == wanted
        reader = udpipe.InputFormat.newInputFormat(layout)
        reader.setText(text)
        theirs, error = udpipe.Sentence(), udpipe.ProcessingError()
        for own in wanted:
            assert reader.nextSentence(theirs, error)
            assert [word.form for word in theirs.words][1:] == own
        assert not reader.nextSentence(theirs, error)
