"""`seqtool parse` as a user meets it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import random_parser, tiny_config

from seqtool.core.checkpoint import load
from seqtool.parsing.parser.labels import Labels
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import FORM, find_fault

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("here")

NINE = "1\ta\ta\tX\t_\t_\t_\t_\t_\n\n"  # columns
WITH_EVERYTHING = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\tvamos\tir\tX\t_\t_\t2\tx\t_\t_
2\tnos\tnos\tY\t_\t_\t2\ty\t1:a|5.1:b\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tX\t_\t_\t99\t_\t_\tA=b
4\tel\tel\tY\t_\t_\t_\t_\t_\t_
5\t_\t_\tX\t_\t_\t_\t_\t_\t_
5.1\tghost\t_\t_\t_\t_\t_\t_\t1:a\t_

"""


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def others(text: str) -> list[list[str]]:
    """All lines without HEAD and DEPREL of words."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [row[:6] + row[8:] if row[0].isdecimal() else row for row in lines]


def trees_in(text: str) -> list[Any]:
    return list(read_conllu(text, check="tree"))


def test_only_heads_and_relations_change(seqtool: Run) -> None:
    write("in.conllu", WITH_EVERYTHING)
    result = seqtool("parse", "in.conllu", "-m", "parser")
    assert result.code == 0
    assert others(result.stdout) == others(WITH_EVERYTHING)
    (sentence,) = trees_in(result.stdout)
    assert find_fault(sentence.heads()) is None
    cleared = seqtool("parse", "in.conllu", "-m", "parser", "--clear-deps").stdout
    assert ("5.1" in cleared, "vámonos" in cleared) == (False, True)


def test_streams_and_files_say_the_same(seqtool: Run, seqtool_process: Run, here: Path) -> None:
    given = Path("a.conllu").read_bytes()
    expected = seqtool("parse", "a.conllu", "-m", "parser").stdout
    assert seqtool("parse", "a.conllu", "-m", "parser", "-o", "out.conllu.gz").stdout == ""
    assert gzip.decompress(Path("out.conllu.gz").read_bytes()).decode() == expected
    piped = seqtool_process("parse", "-", "-m", "parser", input=given, cwd=here)
    assert piped.stdout == expected
    assert seqtool("parse", "a.conllu", "a.conllu", "-m", "parser").stdout == 2 * expected
    # a file may be parsed in its place
    assert seqtool("parse", "a.conllu", "-m", "parser", "-o", "a.conllu").code == 0
    assert Path("a.conllu").read_text(encoding="utf-8") == expected


def test_a_beam(seqtool: Run) -> None:
    greedy, wide = (seqtool("parse", "a.conllu", "-m", "parser", "--beam", n) for n in (1, 8))
    assert others(wide.stdout) == others(greedy.stdout)
    assert wide.stdout != greedy.stdout
    # a graph parser has none, and says so; a vote has one where one of its parsers has
    graph = [seqtool("parse", "a.conllu", "-m", "graph", "--beam", beam) for beam in (1, 4)]
    assert graph[0].stdout == graph[1].stdout
    assert ["--beam changes nothing" in each.stderr for each in graph] == [False, True]
    both = seqtool("parse", "a.conllu", "-m", "graph", "-m", "parser", "--beam", "4")
    assert (both.code, both.stderr) == (0, "")


def test_several_parsers_find_trees_together(seqtool: Run) -> None:
    result = seqtool("parse", "a.conllu", "-m", "parser", "-m", "second")
    assert (result.code, result.stderr) == (0, "")
    joined = load([Path("parser"), Path("second")]).parse_stream(
        read_conllu("a.conllu", check="columns")
    )
    assert result.stdout == write_conllu(joined)
    # they have probabilities
    ranked = seqtool("parse", "a.conllu", "-m", "parser", "-m", "second", "--nbest", 3)
    best = [tree for tree in trees_in(ranked.stdout) if tree.metadata["parse_rank"] == "1"]
    assert [tree.rows for tree in best] == [tree.rows for tree in trees_in(result.stdout)]
    scored = seqtool("parse", "a.conllu", "-m", "parser", "-m", "second", "--scores")
    assert all(token.score is not None for tree in trees_in(scored.stdout) for token in tree)


def test_broken_sentences(seqtool: Run, refused: Callable[..., str]) -> None:
    good = Path("a.conllu").read_text(encoding="utf-8")
    write("broken.conllu", NINE + good)
    assert "--skip-invalid" in refused("parse broken.conllu -m parser", "broken.conllu:1: ")
    result = seqtool("parse", "broken.conllu", "-m", "parser", "--skip-invalid")
    assert (result.code, result.stdout.startswith(NINE)) == (0, True)
    assert others(result.stdout.removeprefix(NINE)) == others(good)
    assert "passed through: broken.conllu:1: " in result.stderr
    drawn = seqtool("parse", "broken.conllu", "-m", "parser", "--skip-invalid", "-f", "json")
    assert (drawn.code, drawn.stdout.count("\n")) == (0, 30)
    # they go neither where all others go, nor over what is read
    for options in (
        *("-o x.html --invalid x.html", "-o x.conllu --jobs 2 --invalid x.conllu"),
        *("--invalid a.conllu", "--jobs 2 --invalid a.conllu", "-f tree --invalid a.conllu"),
    ):
        refused(f"parse a.conllu -m parser {options}")


@pytest.mark.parametrize("format_", ["tree", "svg", "html", "tikz", "json"])
def test_drawings(format_: str, seqtool: Run) -> None:
    """`draw` makes the same of what was parsed."""
    words = ("parse", "a.conllu", "-m", "parser")
    result = seqtool(*words, "--format", format_)
    assert result.code == 0
    assert seqtool(*words, "-o", "parsed.conllu").code == 0
    assert seqtool("draw", "parsed.conllu", "-f", format_).stdout == result.stdout
    if format_ == "svg":
        assert seqtool(*words, "-f", "svg", "-o", "out").code == 0
        assert Path("out").read_text(encoding="utf-8") == result.stdout
        assert seqtool(*words, "-f", "svg", "-o", "pictures/").code == 0
        assert len(list(Path("pictures").glob("*.svg"))) == 30


def test_gold_trees_beside_the_parse(seqtool: Run) -> None:
    def drawn(name: str) -> str:
        words = ("parse", "a.conllu", "-m", "parser", "--gold", "gold.conllu", "--format", name)
        return str(seqtool(*words).stdout)

    words = [word for line in drawn("json").splitlines() for word in json.loads(line)["words"]]
    num_wrong = sum(word["wrong"] for word in words)
    own, right = (
        list(chain.from_iterable(tree.heads() for tree in trees))
        for trees in (
            trees_in(seqtool("parse", "a.conllu", "-m", "parser").stdout),
            read_conllu("gold.conllu"),
        )
    )
    assert [word["head"] for word in words] == own
    assert [word["gold"]["head"] for word in words] == right
    assert sum(a != b for a, b in zip(own, right, strict=True)) <= num_wrong < len(words)
    assert drawn("tree").count("✗ gold: ") == num_wrong
    assert drawn("svg").count('class="relation gold"') == num_wrong


def test_what_is_missing_may_be_allowed(seqtool: Run, refused: Callable[..., str]) -> None:
    """A pipeline has nothing to allow."""
    lines = [row.split("\t") for row in Path("gold.conllu").read_text().split("\n")]
    bare = "\n".join("\t".join([*row[:3], "_", *row[4:]]) if row[1:] else row[0] for row in lines)
    write("bare.conllu", bare)
    for command in ("parse", "eval-parser", "analyse errors"):
        hint = refused(f"{command} bare.conllu -m parser", "has UPOS, which")
        assert "`seqtool parse --allow-missing`" in hint
    for command in ("parse", "eval-parser"):
        for model in ("parser", "pipeline"):
            given = (command, "bare.conllu", "-m", model, "--allow-missing")
            assert seqtool(*given).code == 0


def test_unknown_tags_are_told(seqtool: Run) -> None:
    strange = Path("gold.conllu").read_text(encoding="utf-8")
    write("strange.conllu", re.sub("\t[XYZ]\t", "\tQ\t", strange))
    for command in ("parse", "parse --jobs 2", "parse -f tree", "eval-parser", "analyse errors"):
        result = seqtool(*command.split(), "strange.conllu", "-m", "parser")
        assert result.stderr.count("warning: ") == 1, command


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--format xml", "xml"),
        ("--gold gold.conllu", "--gold"),
        ("--gold gold.conllu -f tree --skip-invalid", "--gold"),
        ("--gold short.conllu -f tree -o out", "conllu"),
        ("--gold a.conllu -f tree -o out", "a.conllu"),  # which has no trees
        ("- --gold - -f tree", "stdin"),
        ("-m nowhere", "nowhere"),
        ("-m parser", "given twice"),
        ("-m other -o out", "iobj"),
        ("-m second --trace", "vote"),
        ("-o no/x.svg", "directory"),
        ("-o x.conllu.xz", ".xz"),
        ("letter.txt", "letter.txt"),
        ("letter.txt --input horizontl", "no input is called 'horizontl'"),
        ("letter.txt --input vertical --raw", "--input vertical and --raw do not go together"),
        ("--trace -o out.conllu", "--trace"),
        ("--nbest 2 --scores", "--scores"),
        ("--scores --format html", "--scores"),
        ("--trace --jobs 2", "--jobs"),
    ],
)
def test_mistakes(options: str, word: str, refused: Callable[..., str]) -> None:
    lines = Path("gold.conllu").read_text(encoding="utf-8").split("\n\n")
    write("short.conllu", "\n\n".join(lines[:-2]) + "\n\n")
    labels = Labels(("nsubj", "iobj"), ("root",))
    random_parser(tiny_config("swap"), labels).save("other", scores={}, data={})
    refused(f"parse a.conllu -m parser {options}", word)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("x.SVG", "<svg"),
        ("x.txt", "1\t"),
        ("x.html.gz", "<!DOCTYPE html>"),
        ("x.html --format conllu", "1\t"),  # the format that is named counts
    ],
)
def test_the_name_of_the_output_tells_the_format(name: str, begin: str, seqtool: Run) -> None:
    assert seqtool("parse", "a.conllu", "-m", "parser", "-o", *name.split()).code == 0
    content = Path(name.split()[0]).read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    assert content.decode().startswith(begin)


# how trees are built, the best trees, probabilities of arcs


def test_a_trace(seqtool: Run) -> None:
    words = ("parse", "a.conllu", "-m", "parser")
    result = seqtool(*words, "--trace", "--beam", 2)
    assert result.stdout.count("beam of 2: ") + result.stdout.count("transitions, score") >= 30
    assert max(map(len, result.stdout.splitlines())) <= 80
    page = seqtool(*words, "--trace", "-f", "html").stdout
    assert page.count('<section class="derivation">') == 30
    parsed = seqtool(*words, "--format", "json").stdout
    traced = seqtool(*words, "--trace", "--format", "json").stdout
    for line, tree in zip(traced.splitlines(), parsed.splitlines(), strict=True):
        each = json.loads(line)
        assert each["words"] == json.loads(tree)["words"]
        arcs = {arc["word"]: arc["head"] for arc in each["derivation"]["arcs"]}
        assert [arcs[word["id"]] for word in each["words"]] == [w["head"] for w in each["words"]]


def test_the_best_trees(seqtool: Run) -> None:
    words = ("parse", "a.conllu", "-m", "parser", "--nbest", 3)
    trees = trees_in(seqtool(*words).stdout)
    ranks = [int(sentence.metadata["parse_rank"] or 0) for sentence in trees]
    assert (ranks.count(1), set(ranks)) == (30, {1, 2, 3})
    objects = [json.loads(line) for line in seqtool(*words, "-f", "json").stdout.splitlines()]
    assert [tree["rank"] for each in objects for tree in each["trees"]] == ranks
    for each in objects:
        assert [word["head"] for word in each["words"]] == each["trees"][0]["heads"]
    assert seqtool(*words, "-f", "tree").stdout.count("(tree 1, score ") == 30


def test_no_page_begins_where_nothing_can_be_read(refused: Callable[..., str]) -> None:
    write("empty", "")
    assert "seqtool train-parser" in refused("parse a.conllu", "no model")
    for options in ("", "--trace", "--nbest 2"):
        refused(f"parse empty -m parser --format html {options}")


def test_probabilities_of_arcs(seqtool: Run) -> None:
    write("in.conllu", WITH_EVERYTHING)
    result = seqtool("parse", "in.conllu", "-m", "parser", "--scores")
    assert (result.code, "no calibration" in result.stderr) == (0, True)
    (sentence,) = trees_in(result.stdout)
    assert all(token.score is not None for token in sentence)
    assert sentence[2].columns[9].startswith("A=b|Score=")
    # multiword tokens and empty nodes have no arcs
    assert [extra for extra in sentence.extras if "Score" in extra[1]] == []


@pytest.mark.parametrize("kept", ["--scores", "--nbest 1"])
@pytest.mark.parametrize("options", ["", "--jobs 2", "--scores"])
def test_a_new_tree_has_no_rank_and_score_of_another(seqtool: Run, kept: str, options: str) -> None:
    write("in.conllu", WITH_EVERYTHING)
    write("again.conllu", seqtool("parse", "in.conllu", "-m", "parser", *kept.split()).stdout)
    again, expected = (
        seqtool("parse", name, "-m", "parser", *options.split()).stdout
        for name in ("again.conllu", "in.conllu")
    )
    assert again == expected


@pytest.mark.parametrize("command", ["parse", "tag"])
def test_words_are_taken_as_they_are(seqtool: Run, command: str) -> None:
    """The file says by its layout what a word is: spaces may stand in it."""
    words = [["The", "old dog", "sleeps", "."], ["It", "dreams"]]
    rows = [" ".join(word.replace(" ", "\u00a0") for word in row) for row in words]
    write("horizontal", "\n".join(rows))
    write("vertical", "\n\n".join("\n".join(row) for row in words))
    for layout in ("horizontal", "vertical"):
        result = seqtool(command, layout, "--input", layout, "-m", "pipeline")
        assert result.code == 0, result.stderr
        check = "tree" if command == "parse" else "columns"
        sentences = list(read_conllu(result.stdout, check=check))
        assert [sentence.column(FORM) for sentence in sentences] == words
        assert sentences[0].comments[0] == f"# newdoc id = {layout}"
    as_text = seqtool(command, "letter.txt", "--input", "text", "-m", "pipeline")
    assert as_text.stdout == seqtool(command, "letter.txt", "--raw", "-m", "pipeline").stdout
    Path("a.conllu").rename("trees.txt")
    result = seqtool(command, "trees.txt", "--input", "conllu", "-m", "pipeline")
    assert (result.code, result.stdout.count("\n\n")) == (0, 30)
