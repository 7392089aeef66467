"""Trees to be drawn: small files, any tree of a few words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import strategies as st
from strategies import tree_heads

from seqtool.treebank.drawing.rendering import Format, grouped, render_groups
from seqtool.treebank.sentence import Sentence, parse_sentence

GOLDEN = Path(__file__).parent / "treebank" / "golden"
TREES, GOLD = GOLDEN / "trees.conllu", GOLDEN / "trees.gold.conllu"


def sentence(
    heads: list[int],
    forms: list[str] | None = None,
    relations: list[str] | None = None,
    line: int = 1,
) -> Sentence:
    forms = forms or ["w"] * len(heads)
    relations = relations or ["dep"] * len(heads)
    lines = [
        f"{i}\t{form}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_"
        for i, (form, head, relation) in enumerate(zip(forms, heads, relations, strict=True), 1)
    ]
    return parse_sentence("\n".join(lines), "file", line, "columns")


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Heads of any tree of up to ten words, crossing arcs and all."""
    return tree_heads(draw, draw(st.integers(1, 10)))


def render(
    sentences: Iterable[Sentence],
    form: Format,
    *,
    gold: Iterable[Sentence] | None = None,
    colour: bool = False,
) -> Iterator[str]:
    """The pieces of a drawing of one analysis."""
    return render_groups(grouped([sentences], [""], gold), form, colour=colour)


class Tags(HTMLParser):
    """The elements of a page and the addresses in it; all are closed in order."""

    VOID = ("meta", "path", "rect", "input", "use")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str | None] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        assert not {"style", "onclick"} & {name for name, _ in attrs}  # the policy refuses them
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
