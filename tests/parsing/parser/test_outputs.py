"""Whatever is read comes back with a tree in each sentence and all else as it was.

The judges are the validator and the scorer of Universal Dependencies (`udtools`).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing.parser.test_train import config, trained
from parsing.parser.tiny import random_parser, tiny_config
from strategies import sentence_texts

from seqtool.core import checkpoint
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.treebank.conllu import read_items, write_conllu
from seqtool.treebank.projectivity import LIFTED
from seqtool.treebank.sentence import DEPREL, HEAD, Sentence

ARCS = ("nsubj", "obj", "det")
# of lifted arcs, which are to be put back
LIFTED_ARCS = tuple(f"{arc}{LIFTED}{head}" for arc in ARCS for head in ("obj", "root"))
KINDS = [
    *(("random", system, "none") for system in SYSTEMS),
    ("random", "arc-standard", "bilstm"),
    *(("trained", system, "none") for system in SYSTEMS),
]


@pytest.fixture(scope="module")
def parsers(
    treebank: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, str], Parser]:
    """The parser of a kind, made once."""
    folder = tmp_path_factory.mktemp("parsers")

    @cache
    def parser(how: str, system: str, encoder: str) -> Parser:
        if how == "trained":
            settings = config(2, model__system=system)
            trained(treebank, folder / system, settings, "non-projective-")
            return checkpoint.load(folder / system, Parser)
        arcs = (*ARCS, *LIFTED_ARCS) if SYSTEMS[system].projective else ARCS
        settings = tiny_config(system, encoder=encoder, encoder_size=4)
        return random_parser(settings, Labels(arcs, ("root",)))

    return parser


def tree_alone(text: str) -> str:
    """The words and arcs of an output, with nothing else that a validator could object to."""
    blocks = []
    for number, block in enumerate(text.removesuffix("\n\n").split("\n\n")):
        rows = [line.split("\t") for line in block.split("\n") if not line.startswith("#")]
        words = [row for row in rows if row[0].isdecimal()]
        lines = [
            "\t".join((row[0], "w", "w", "X", "_", "_", row[HEAD], row[DEPREL], "_", "_"))
            for row in words
        ]
        written = " ".join("w" * len(words))
        blocks.append("\n".join((f"# sent_id = s{number}", f"# text = {written}", *lines, "", "")))
    return "".join(blocks)


def others(text: str) -> list[list[str]]:
    """All lines, those of words without HEAD and DEPREL."""
    lines = [line.split("\t") for line in text.split("\n")]
    return [
        row[:HEAD] + row[DEPREL + 1 :] if row[0].isascii() and row[0].isdecimal() else row
        for row in lines
    ]


def written(items: Any, **options: bool) -> str:
    stream = io.BytesIO()
    write_conllu(items, stream, **options)
    return stream.getvalue().decode()


@pytest.mark.parametrize("heads", [(0, 0, 1), (2, 1, 0), (0, 4, 1), (2, 3, 1)])
def test_the_validator_objects_to_what_is_no_tree(
    heads: tuple[int, ...], errors_of: Callable[[str], str]
) -> None:
    rows = (f"{i}\ta\ta\tX\t_\t_\t{head}\tdep\t_\t_" for i, head in enumerate(heads, 1))
    assert errors_of(tree_alone("\n".join((*rows, "", "")))) != ""


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    texts=st.lists(sentence_texts(trees=False), min_size=1, max_size=3),
    beam=st.sampled_from([1, 1, 8]),
)
def test_any_input_that_reads_gets_trees_and_keeps_all_else(
    parsers: Callable[..., Parser],
    errors_of: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    kind: tuple[str, str, str],
    texts: list[str],
    beam: int,
) -> None:
    from udtools import udeval

    raw = "".join(text + "\n" for text in texts)
    path = tmp_path_factory.mktemp("conllu") / "a.conllu"
    path.write_bytes(raw.encode())
    items = list(parsers(*kind).parse_stream(read_items(path, check="columns"), beam=beam))
    parsed = written(items)
    assert others(parsed) == others(raw)
    assert errors_of(tree_alone(parsed)) == ""
    # one word hangs on the root, and it alone has the relation root
    for block in tree_alone(parsed).split("\n\n")[:-1]:
        rows = [line.split("\t") for line in block.split("\n")[2:]]
        assert [row[DEPREL] for row in rows if row[HEAD] == "0"] == ["root"]
        assert {row[DEPREL] for row in rows if row[HEAD] != "0"} <= set(ARCS)
    # the scorer also looks at the enhanced graphs, which come back as they were read
    judged = udeval.load_conllu(io.StringIO(written(items, clear_deps=True), newline="\n"), "", {})
    assert len(judged.sentences) == len(texts)
    assert len(judged.words) == sum(len(item) for item in items if isinstance(item, Sentence))
