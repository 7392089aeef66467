"""`seqtool parse` as a user meets it."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import make_sentence, random_parser, random_sentences, tiny_config

from seqtool.core.checkpoint import load
from seqtool.parsing.parser.labels import Labels
from seqtool.treebank.conllu import read_conllu, write_conllu
from seqtool.treebank.sentence import find_fault

Run = Callable[..., Any]

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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parser"
    random_parser(tiny_config()).save(path, scores={}, data={})
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.conllu"
    # few tags that the parser does not know, so that it does not warn
    sentences = random_sentences(12, 9, tags="XXXYYYZ")
    write_conllu(sentences, path)
    return path


def others(text: str) -> list[list[str]]:
    """All lines without HEAD and DEPREL of words."""
    lines = []
    for line in text.splitlines():
        columns = line.split("\t")
        is_word = columns[0].isdecimal()
        lines.append(columns[:6] + columns[8:] if is_word else columns)
    return lines


def test_only_heads_and_relations_change(seqtool: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.conllu"
    path.write_text(WITH_EVERYTHING, encoding="utf-8")
    result = seqtool("parse", path, "-m", model)
    assert result.code == 0
    assert others(result.stdout) == others(WITH_EVERYTHING)
    (sentence,) = read_conllu([write(tmp_path / "out.conllu", result.stdout)])
    assert find_fault(sentence.heads()) is None


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_clear_deps(seqtool: Run, model: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.conllu", WITH_EVERYTHING)
    result = seqtool("parse", path, "-m", model, "--clear-deps")
    assert "5.1" not in result.stdout
    assert "vámonos" in result.stdout


def test_streams_and_files_say_the_same(
    seqtool: Run, model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = seqtool("parse", text, "-m", model).stdout
    output = tmp_path / "out.conllu.gz"
    assert seqtool("parse", text, "-m", model, "-o", output).stdout == ""
    assert gzip.decompress(output.read_bytes()).decode() == expected
    stdin = io.TextIOWrapper(io.BytesIO(text.read_bytes()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert seqtool("parse", "-", "-m", model).stdout == expected
    assert seqtool("parse", text, text, "-m", model).stdout == 2 * expected
    # a file may be parsed in its place
    assert seqtool("parse", text, "-m", model, "-o", text).code == 0
    assert text.read_text(encoding="utf-8") == expected


def test_a_beam(seqtool: Run, model: Path, text: Path) -> None:
    greedy = seqtool("parse", text, "-m", model).stdout
    wide = seqtool("parse", text, "-m", model, "--beam", "8").stdout
    assert others(wide) == others(greedy)
    assert wide != greedy


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "second"
    random_parser(tiny_config("arc-eager"), seed=1).save(path, scores={}, data={})
    return path


def test_several_parsers_find_trees_together(
    seqtool: Run, model: Path, second: Path, text: Path, tmp_path: Path
) -> None:
    found = seqtool("parse", text, "-m", model, "-m", second)
    assert (found.code, found.stderr) == (0, "")
    joined = load([model, second]).parse_stream(read_conllu(text, check="columns"))
    assert found.stdout == write_conllu(joined)
    assert others(found.stdout) == others(text.read_text(encoding="utf-8"))
    trees = list(read_conllu([write(tmp_path / "out.conllu", found.stdout)]))
    assert all(find_fault(sentence.heads()) is None for sentence in trees)
    assert seqtool("parse", text, "-m", second, "-m", model).stdout == found.stdout
    svg = seqtool("parse", text, "-m", model, "-m", second, "--beam", "2", "-f", "svg")
    assert svg.stdout.startswith("<svg")


def test_parsers_that_cannot_work_together(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    labels = Labels(("nsubj", "iobj"), ("root",))
    random_parser(tiny_config("swap"), labels).save(tmp_path / "other", scores={}, data={})
    for paths, message, hint in (
        ((model, tmp_path / "other"), "only the one has det, obj; only the other has iobj", "one"),
        ((model, model), f"{model} is given twice", "once"),
        ((model, tmp_path / "none"), "no such model", ""),
    ):
        result = seqtool("parse", text, "-m", paths[0], "-m", paths[1], "-o", tmp_path / "out")
        assert (result.code, result.stdout) == (1, "")
        first, second = result.stderr.splitlines()
        assert message in first
        assert second.startswith("hint: ")
        assert hint in second
        assert not (tmp_path / "out").exists()


def test_broken_sentences(seqtool: Run, model: Path, text: Path) -> None:
    good = text.read_text(encoding="utf-8")
    nine = "1\ta\ta\tX\t_\t_\t_\t_\t_\n"
    text.write_text(f"{nine}\n{good}", encoding="utf-8")
    result = seqtool("parse", text, "-m", model)
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first == f"error: {text}:1: 9 columns, where CoNLL-U has 10"
    assert "--skip-invalid" in second
    result = seqtool("parse", text, "-m", model, "--skip-invalid")
    assert result.code == 0
    assert result.stdout.startswith(f"{nine}\n")
    assert others(result.stdout.removeprefix(f"{nine}\n")) == others(good)
    assert f"passed through: {text}:1: 9 columns" in result.stderr


@pytest.mark.parametrize("format_", ["tree", "svg", "html", "json"])
def test_formats(format_: str, seqtool: Run, model: Path, text: Path, tmp_path: Path) -> None:
    result = seqtool("parse", text, "-m", model, "--format", format_)
    assert result.code == 0
    output = tmp_path / "out"
    assert seqtool("parse", text, "-m", model, "-f", format_, "-o", output).code == 0
    assert output.read_text(encoding="utf-8") == result.stdout
    if format_ == "json":
        objects = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(objects) == 12
    elif format_ == "svg":
        assert result.stdout.startswith("<svg")


def gold_of(text: Path, path: Path) -> Path:
    """The same sentences with chains for trees: each word depends on the one before it."""
    sentences = list(read_conllu(text, check="columns"))
    for sentence in sentences:
        size = len(sentence)
        sentence.set_tree(range(size), ["root", *["obj"] * (size - 1)])
    return write(path, "".join(sentence.to_conllu() for sentence in sentences))


def heads_in(path: Path) -> list[list[int]]:
    return [sentence.heads() for sentence in read_conllu(path)]


@pytest.mark.parametrize("same_file", [False, True])
def test_gold_trees_beside_the_parse(
    same_file: bool, seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    gold = gold_of(text, tmp_path / "gold.conllu")
    given = gold if same_file else text
    parsed = tmp_path / "parsed.conllu"
    assert seqtool("parse", given, "-m", model, "-o", parsed).code == 0
    draw = ("parse", given, "-m", model, "--gold", gold, "--format")
    drawn = {name: seqtool(*draw, name).stdout for name in ("tree", "svg", "html", "json")}
    words = [word for line in drawn["json"].splitlines() for word in json.loads(line)["words"]]
    num_wrong = sum(word["wrong"] for word in words)
    own, right = (list(chain(*heads_in(path))) for path in (parsed, gold))
    assert [word["head"] for word in words] == own
    assert [word["gold"]["head"] for word in words] == right
    assert sum(a != b for a, b in zip(own, right, strict=True)) <= num_wrong < len(words)
    assert drawn["tree"].count("✗ gold: ") == num_wrong
    assert drawn["svg"].count('class="relation gold"') == num_wrong
    assert drawn["html"].count('class="relation wrong"') == num_wrong


def test_gold_trees_of_what_comes_from_stdin(
    seqtool: Run, model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold = gold_of(text, tmp_path / "gold.conllu")
    expected = seqtool("parse", gold, "-m", model, "--gold", gold, "-f", "tree").stdout
    for files in (("-", "--gold", "-"), ("-", "--gold", gold), (gold, "--gold", "-")):
        stdin = io.TextIOWrapper(io.BytesIO(gold.read_bytes()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert seqtool("parse", *files, "-m", model, "-f", "tree").stdout == expected


def test_gold_trees_that_do_not_fit(seqtool: Run, model: Path, text: Path, tmp_path: Path) -> None:
    gold = gold_of(text, tmp_path / "gold.conllu")
    lines = gold.read_text(encoding="utf-8").split("\n\n")
    short = write(tmp_path / "short.conllu", "\n\n".join(lines[:-2]) + "\n\n")
    draw = ("parse", "-m", model, "-f", "tree", "-o", tmp_path / "out")
    for files, message in (
        ((text, "--gold", short), "there is no gold sentence for this one"),
        ((short, "--gold", gold), "the gold sentence has no counterpart"),
        ((text, "--gold", write(tmp_path / "x.conllu", "1" + "\tx" * 5 + "\t0" + "\tx" * 3)),
         "the words differ from those of"),
        ((text, "--gold", text), "head '_', which is no word number"),
    ):  # fmt: skip
        result = seqtool(*draw, *files)
        assert (result.code, result.stdout) == (1, "")
        assert message in result.stderr.splitlines()[0]
        assert f"{tmp_path}{os.sep}" in result.stderr
        assert not (tmp_path / "out").exists()


def test_broken_gold_trees_are_left_out(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    gold = gold_of(text, tmp_path / "gold.conllu")
    sentences = gold.read_text(encoding="utf-8").split("\n\n")
    broken = sentences[3].replace("\troot\t", "\troot\t\t", 1)  # eleven columns
    rootless = sentences[5].replace("\t0\troot", "\t1\troot", 1)
    write(gold, "\n\n".join([*sentences[:3], broken, sentences[4], rootless, *sentences[6:]]))
    for given in (text, gold):
        command = ("parse", given, "-m", model, "--gold", gold, "-f", "json")
        assert seqtool(*command).code == 1
        result = seqtool(*command, "--skip-invalid")
        assert (result.code, result.stderr.count("left out: ")) == (0, 2)
        drawn = [json.loads(line)["words"] for line in result.stdout.splitlines()]
        kept = heads_in(write(tmp_path / "kept", "\n\n".join(sentences)))
        kept = [heads for index, heads in enumerate(kept) if index not in (3, 5)]
        assert [[word["gold"]["head"] for word in words] for words in drawn] == kept


def test_a_damaged_file_is_left_out_beside_gold_trees(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    gold = gold_of(text, tmp_path / "gold.conllu")
    damaged = tmp_path / "damaged.conllu.gz"
    damaged.write_bytes(gzip.compress(gold.read_bytes() * 200)[:-9])
    draw = ("-m", model, "-f", "json", "--skip-invalid")
    expected = seqtool("parse", text, "--gold", gold, *draw)
    result = seqtool("parse", damaged, text, "--gold", gold, *draw)
    assert (result.code, result.stdout) == (0, expected.stdout)
    assert "1 of 2 files left out" in result.stderr
    same = seqtool("parse", damaged, gold, "--gold", damaged, "--gold", gold, *draw)
    assert (same.code, same.stdout) == (0, expected.stdout)
    # one in between leaves its gold trees out
    first, last = tmp_path / "first.conllu", tmp_path / "last.conllu"
    for path in (first, last):
        shutil.copy(text, path)
    files = (first, damaged, last)
    trees = [part for _ in files for part in ("--gold", gold)]
    between = seqtool("parse", *files, *trees, *draw)
    assert (between.code, between.stdout) == (0, expected.stdout * 2)
    twice = write(tmp_path / "twice.conllu", gold.read_text(encoding="utf-8") * 2)
    unknown = seqtool("parse", *files, "--gold", twice, *draw)
    assert (unknown.code, unknown.stdout) == (1, "")
    assert "nothing tells which gold trees are theirs" in unknown.stderr


def test_who_can_allow_what_is_missing(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    """A hint names --allow-missing where the command has it."""
    gold = gold_of(text, tmp_path / "gold.conllu")
    lines = [line.split("\t") for line in gold.read_text(encoding="utf-8").split("\n")]
    bare = "\n".join("\t".join([*row[:3], "_", *row[4:]]) if row[1:] else row[0] for row in lines)
    path = write(tmp_path / "bare.conllu", bare)
    for command, has_it in (("parse", True), ("eval-parser", True), ("analyse errors", False)):
        result = seqtool(*command.split(), path, "-m", model)
        assert (result.code, "UPOS, which this parser reads" in result.stderr) == (1, True)
        hint = result.stderr.splitlines()[-1]
        assert hint.startswith("hint: tag it first")
        assert ("--allow-missing parses it as it is" in hint) == has_it
    forms = tmp_path / "forms"
    random_parser(tiny_config(fields=["form"])).save(forms, scores={}, data={})
    for command in ("eval-parser", "analyse errors"):
        result = seqtool(*command.split(), path, "-m", forms, "-m", model)
        assert (result.code, f"UPOS, which {model}" in result.stderr) == (1, True)


def test_analyses_and_scores_warn_alike(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    strange = gold_of(text, tmp_path / "strange.conllu").read_text(encoding="utf-8")
    path = write(tmp_path / "strange.conllu", re.sub("\t[XYZ]\t", "\tQ\t", strange))
    told = [
        [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
        for result in (
            seqtool(*command.split(), path, "-m", model)
            for command in ("eval-parser", "analyse errors")
        )
    ]
    assert len(told[0]) == 1
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "xml"), "no format is called 'xml'"),
        (("--format", "tree", "--clear-deps"), "--clear-deps is for CoNLL-U"),
        (("--gold", "gold.conllu"), "--gold is for drawings"),
        (("-", "--gold", "-", "-f", "tree"), "stdin can be read once only"),
        (("-m", "nowhere"), "no such model"),
        (("-o", "drawn/", "-f", "html"), "drawn/ is a directory, which only CoNLL-U"),
        (("-o", "steps/", "--trace"), "steps/ is a directory, which only CoNLL-U"),
        (("-o", "x.pdf"), "parse makes no .pdf files"),
        (("--beam", "9" * 20), "but must be at most 1048576"),
        (("-o", "x.conllu.xz"), "packed as .gz or .zst, not as .xz"),
        (("letter.txt",), "letter.txt is plain text by its name, and others are not"),
    ],
)
def test_mistakes(
    options: tuple[str, ...],
    message: str,
    seqtool: Run,
    model: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    result = seqtool("parse", text, "-m", model, *options)
    assert (result.code, result.stdout) == (1, "")
    assert message in result.stderr.splitlines()[0]
    assert {*tmp_path.iterdir()} == before


def test_without_a_model(
    seqtool: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool("parse", text)
    assert result.code == 1
    assert "seqtool train-parser" in result.stderr


def test_a_sentence_of_two_thousand_words(seqtool: Run, model: Path, tmp_path: Path) -> None:
    words = [("a", "X"), ("B", "Y")] * 1000
    path = write(tmp_path / "long.conllu", make_sentence(words).to_conllu())
    result = seqtool("parse", path, "-m", model, "--beam", "4")
    (sentence,) = read_conllu([write(tmp_path / "out.conllu", result.stdout)])
    assert len(sentence) == 2000
    assert find_fault(sentence.heads()) is None


def test_torch_is_not_imported(model: Path, text: Path) -> None:
    code = (
        "import sys; from seqtool.cli.app import main; "
        f"code = main(['parse', {str(text)!r}, '-m', {str(model)!r}, '-o', {os.devnull!r}]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_name_of_the_output_tells_the_format(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    for name, begin in (
        ("x.html", "<!DOCTYPE html>"),
        ("x.SVG", "<svg"),
        ("x.json", "{"),
        ("x.jsonl", "{"),
        ("x.htm", "<!DOCTYPE html>"),
        ("x.conllu", "1\t"),
        ("x.txt", "1\t"),
    ):
        assert seqtool("parse", text, "-m", model, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text().startswith(begin), name
    for name, begin in (("x.html.gz", b"<!DOCTYPE html>"), ("x.json.gz", b"{"), ("x.gz", b"1\t")):
        assert seqtool("parse", text, "-m", model, "-o", tmp_path / name).code == 0
        assert gzip.decompress((tmp_path / name).read_bytes()).startswith(begin), name
    # what is said counts
    options = ("--format", "conllu", "-o", tmp_path / "x.html", "--clear-deps")
    assert seqtool("parse", text, "-m", model, *options).code == 0
    assert (tmp_path / "x.html").read_text().startswith("1\t")


def test_broken_sentences_do_not_go_where_drawings_go(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    page = tmp_path / "x.html"
    result = seqtool("parse", text, "-m", model, "-o", page, "--invalid", page)
    assert result.code == 1
    assert result.stderr.startswith("error: broken sentences and all others would both be written")
    assert not page.exists()
    # nor over what is read
    copy = write(tmp_path / "copy.conllu", text.read_text())
    for options in ((), ("--jobs", 2), ("-f", "tree")):
        result = seqtool("parse", copy, "-m", model, "--invalid", copy, *options)
        assert (result.code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"error: {copy}: is read, and would be replaced")
    assert copy.read_text() == text.read_text()


# how trees are built, the best trees, probabilities of arcs


def test_a_trace_in_the_terminal(seqtool: Run, model: Path, text: Path) -> None:
    result = seqtool("parse", text, "-m", model, "--trace", "--beam", 2)
    assert result.code == 0
    assert result.stdout.count("beam of 2: ") + result.stdout.count("transitions, score") >= 12
    assert "no other" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_trace_as_a_page_and_as_json(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    page, lines = tmp_path / "steps.html", tmp_path / "steps.json"
    for path in (page, lines):
        result = seqtool("parse", text, "-m", model, "--trace", "-o", path)
        assert (result.code, result.stdout) == (0, "")
    assert page.read_text(encoding="utf-8").count('<section class="derivation">') == 12
    parsed = seqtool("parse", text, "-m", model, "--format", "json")
    expected = [json.loads(line)["words"] for line in parsed.stdout.splitlines()]
    found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [each["words"] for each in found] == expected
    for each in found:
        arcs = {arc["word"]: arc["head"] for arc in each["derivation"]["arcs"]}
        assert [arcs[word["id"]] for word in each["words"]] == [w["head"] for w in each["words"]]


def test_the_best_trees(seqtool: Run, model: Path, text: Path, tmp_path: Path) -> None:
    result = seqtool("parse", text, "-m", model, "--nbest", 3)
    assert result.code == 0
    path = write(tmp_path / "ranked.conllu", result.stdout)
    ranks = [int(sentence.metadata["parse_rank"] or 0) for sentence in read_conllu(path)]
    assert ranks.count(1) == 12
    assert set(ranks) == {1, 2, 3}
    lines = seqtool("parse", text, "-m", model, "--nbest", 3, "--format", "json").stdout
    found = [json.loads(line) for line in lines.splitlines()]
    assert [tree["rank"] for each in found for tree in each["trees"]] == ranks
    for each in found:
        assert [word["head"] for word in each["words"]] == each["trees"][0]["heads"]
    drawn = seqtool("parse", text, "-m", model, "--nbest", 2, "--format", "tree").stdout
    assert drawn.count("(tree 1, score ") == 12


@pytest.mark.parametrize("options", [(), ("--trace",), ("--nbest", 2)])
def test_no_page_begins_where_nothing_can_be_read(
    seqtool: Run, model: Path, tmp_path: Path, options: tuple[Any, ...]
) -> None:
    result = seqtool("parse", write(tmp_path / "e", ""), "-m", model, *options, "--format", "html")
    assert (result.code, result.stdout) == (1, "")
    assert "the file is empty" in result.stderr


def test_probabilities_of_arcs(seqtool: Run, model: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.conllu", WITH_EVERYTHING)
    result = seqtool("parse", path, "-m", model, "--scores")
    assert result.code == 0
    assert result.stderr == (
        "the parser has no calibration: probabilities are those that it works with\n"
    )
    (sentence,) = read_conllu(write(tmp_path / "out.conllu", result.stdout))
    assert all(token.score is not None for token in sentence)
    assert sentence[2].columns[9].startswith("A=b|Score=")
    # multiword tokens and empty nodes have no arcs
    assert [extra for extra in sentence.extras if "Score" in extra[1]] == []
    # another tree does not keep them, in a batch of bytes or by way of sentences
    again = write(tmp_path / "again.conllu", result.stdout)
    for options in ((), ("--clear-deps",), ("--jobs", 2)):
        expected = seqtool("parse", path, "-m", model, *options).stdout
        assert seqtool("parse", again, "-m", model, *options).stdout == expected


@pytest.mark.parametrize("options", [(), ("--clear-deps",), ("--jobs", 2), ("--scores",)])
def test_a_new_tree_has_no_rank_and_score_of_another(
    seqtool: Run, model: Path, tmp_path: Path, options: tuple[Any, ...]
) -> None:
    path = write(tmp_path / "in.conllu", WITH_EVERYTHING)
    ranked = write(
        tmp_path / "ranked.conllu", seqtool("parse", path, "-m", model, "--nbest", 1).stdout
    )
    assert "# parse_rank = 1\n# parse_score = " in ranked.read_text(encoding="utf-8")
    again = seqtool("parse", ranked, "-m", model, *options)
    assert again.stdout == seqtool("parse", path, "-m", model, *options).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "--format", "svg"], "--trace cannot be shown as svg"),
        (["--trace", "-o", "out.conllu"], "--trace cannot be shown as conllu"),
        (["--trace", "--nbest", 2], "--trace and --nbest do not go together"),
        (["--nbest", 2, "--scores"], "--nbest and --scores do not go together"),
        (["--nbest", 2, "--format", "svg"], "--nbest cannot be shown as svg"),
        (["--scores", "--format", "html"], "--scores cannot be shown as html"),
        (["--nbest", 2, "--format", "tree", "--gold", "x"], "--nbest and --gold do not go"),
        (["--trace", "--clear-deps"], "--clear-deps is for CoNLL-U"),
    ],
)
def test_details_that_cannot_be_had(
    options: list[Any],
    message: str,
    seqtool: Run,
    model: Path,
    text: Path,
) -> None:
    result = seqtool("parse", text, "-m", model, *options)
    assert result.code == 1
    assert message in result.stderr
    assert result.stdout == ""


def test_parsers_that_vote_have_scores_but_no_derivation(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    random_parser(tiny_config("swap")).save(tmp_path / "other", scores={}, data={})
    both = ("-m", model, "-m", tmp_path / "other")
    result = seqtool("parse", text, *both, "--trace")
    assert (result.code, result.stdout) == (1, "")
    assert "parsers that vote build no tree step by step" in result.stderr
    result = seqtool("parse", text, *both, "--nbest", 3)
    ranked = list(read_conllu(write(tmp_path / "ranked.conllu", result.stdout)))
    best = [tree for tree in ranked if tree.metadata["parse_rank"] == "1"]
    parsed = seqtool("parse", text, *both)
    trees = list(read_conllu(write(tmp_path / "parsed.conllu", parsed.stdout)))
    assert [tree.rows for tree in best] == [tree.rows for tree in trees]
    assert len(ranked) > len(best)
    result = seqtool("parse", text, *both, "--scores")
    found = read_conllu(write(tmp_path / "out.conllu", result.stdout))
    assert all(token.score is not None for sentence in found for token in sentence)


def test_a_directory_does_not_take_the_place_of_the_treebanks_in_it(
    seqtool: Run, model: Path, text: Path, tmp_path: Path
) -> None:
    gold = tmp_path / "d" / "gold.conllu"
    gold.parent.mkdir()
    shutil.copy(text, gold)
    before = gold.read_bytes()
    result = seqtool("parse", gold, "-m", model, "-o", gold.parent)
    assert (result.code, gold.read_bytes()) == (1, before)
    assert result.stderr.startswith(f"error: {gold}: is read, and would be replaced\n")
    for given in (gold, gold.parent):  # which are named
        assert seqtool("parse", given, "-m", model, "-o", given).code == 0
