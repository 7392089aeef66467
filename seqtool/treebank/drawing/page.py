"""Trees as one HTML page: to search, to go through with keys, to print.

The pictures of each sentence, one across and one with the words below one another, stand in
`noscript` elements. Without a script a browser shows the first. With one they are text that costs
little: the page's own script makes pictures of those that are in view, and shows the one that fits.
The words of a sentence stand there as CoNLL-U, to be read and to be searched. The page loads
nothing, and its policy names style and script by their sums. Every text of data is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from seqtool.core.errors import counted
from seqtool.treebank.drawing.column import ROW, draw_down
from seqtool.treebank.drawing.marked import MarkedSentence, printable
from seqtool.treebank.drawing.picture import MARGIN, Picture, draw, opening_tag
from seqtool.treebank.drawing.style import STYLE

_FOLDER = files("seqtool.treebank.drawing")


def policy_of(style: str, script: str, *, form_action: str = "'none'") -> str:
    """Return the element that lets a page run its own style and script, and load nothing.

    Its forms are sent nowhere, or where `form_action` says in the words of such a policy.
    """
    sums = [
        base64.b64encode(hashlib.sha256(f"\n{text}\n".encode()).digest()).decode()
        for text in (style, script)
    ]
    policy = (
        f"default-src 'none'; style-src 'sha256-{sums[0]}'; script-src 'sha256-{sums[1]}'; "
        f"base-uri 'none'; form-action {form_action}"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'


class Above(NamedTuple):
    """What a page has above its trees.

    Attributes:
        title: of the page.
        elements: HTML.
        style, script: its own; they come after those of the trees.
        form_action: where forms may be sent, as of `policy_of`.
    """

    title: str = "Dependency trees"
    elements: str = ""
    style: str = ""
    script: str = ""
    form_action: str = "'none'"


def page(
    groups: Iterable[Sequence[MarkedSentence]],
    *,
    beside: bool = False,
    above: Above | None = None,
) -> Iterator[str]:
    """Give the page in pieces, a sentence each; memory does not grow with them.

    Args:
        groups: the analyses of each sentence.
        beside: they stand side by side where the window is wide enough.
        above: what stands above them.
    """
    above = above or Above()
    style = f"{(_FOLDER / 'page.css').read_text(encoding='utf-8')}{above.style}{STYLE}"
    kind = ' class="beside"' if beside else ""
    script = f"{(_FOLDER / 'page.js').read_text(encoding='utf-8')}{above.script}".strip()
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{policy_of(style, script, form_action=above.form_action)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(above.title)}</title>\n<style>\n{style}\n</style>\n"
        f'</head>\n<body>\n{above.elements}{_CONTROLS}<main{kind} data-rows="{MARGIN:g} {ROW:g}">\n'
    )
    for number, group in enumerate(groups, start=1):
        yield _section(group, number)
    yield f"</main>\n{_TIP}<script>\n{script}\n</script>\n</body>\n</html>\n"


_CONTROLS = """
<header id="controls" hidden>
<form role="search"><input id="query" type="search" autocomplete="off" spellcheck="false"
 placeholder="word, or lemma=go deprel=nsubj" aria-label="search" aria-describedby="help">
<label id="only-marked" hidden><input id="only" type="checkbox">
 <span></span></label>
<label>words <select id="layout"><option value="auto">as fits</option>
<option value="across">across</option><option value="down">down</option></select></label>
<output id="count" aria-live="polite"></output></form>
<details id="help"><summary>help</summary>
<p>A <b>word</b> is found in forms and lemmas, in part; <code>form</code>, <code>lemma</code>,
<code>upos</code>, <code>xpos</code>, <code>tag</code> (either), <code>feats</code>,
<code>deprel</code> and <code>misc</code> are asked for as <code>deprel=nsubj</code>, with
<code>*</code> for any letters. One word must have all that is asked for:
<code>upos=VERB feats.Tense=Past</code>.</p>
<p><kbd>/</kbd> search · <kbd>j</kbd> <kbd>k</kbd> next and previous sentence · in a picture,
<kbd>←</kbd> <kbd>→</kbd> (or <kbd>↑</kbd> <kbd>↓</kbd>) go along the words, the other two to the
head and to the first dependent, <kbd>Home</kbd> <kbd>End</kbd> <kbd>Esc</kbd></p></details>
</header>
""".lstrip()
_TIP = '<div id="tip" role="status" hidden></div>\n'


def _section(group: Sequence[MarkedSentence], number: int) -> str:
    first = group[0]
    num_marked = max(sentence.num_marked() for sentence in group)
    figures = "".join(_figure(sentence, number) for sentence in group)
    rank = f" · {escape(first.rank)}" if first.rank else ""
    # a text that was split has names that are numbers
    name = f" {escape(first.name)}" if first.name != str(number) else ""
    marks_shown = _marks(first, num_marked) if len(group) == 1 or first.gold is None else ""
    marks = "errors" if first.gold is not None else "differences" if len(group) > 1 else ""
    marked = f' data-marks="{marks}" data-marked="{num_marked}"' if marks else ""
    return (
        f'<section id="s{number}"{marked}>\n<h2><a href="#s{number}">{number}</a>'
        f"{name}{rank}{marks_shown}</h2>\n"
        f'<p dir="auto">{escape(first.text)}</p>\n<div class="analyses">\n{figures}</div>\n'
        "</section>\n"
    )


def _marks(sentence: MarkedSentence, num: int) -> str:
    """Return how many arcs are wrong, or differ, if there is something to compare with."""
    if sentence.gold is None and not sentence.source:
        return ""
    text, kind = counted(num, "wrong arc"), "errors"
    if sentence.gold is None:
        text, kind = f"{counted(num, 'word')} differ" + ("s" if num == 1 else ""), "differences"
    kind = f' class="{kind}"' if num else ""
    return f" · <span{kind}>{text}</span>"


def _figure(sentence: MarkedSentence, number: int) -> str:
    across, down = draw(sentence), draw_down(sentence)
    direction = "rtl" if across.leftward else "ltr"
    caption = ""
    if sentence.source:
        marks = _marks(sentence, sentence.num_wrong()) if sentence.gold is not None else ""
        caption = f"<figcaption>{escape(sentence.source)}{marks}</figcaption>\n"
    label = f"tree of sentence {number}"
    lines = sentence.sentence.to_conllu().rstrip("\n").split("\n")
    columns = "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
    return (
        f'<figure>\n{caption}<div class="picture" dir="{direction}" tabindex="0" role="group" '
        f'aria-label="{label}" data-across="{_size(across)}" data-down="{_size(down)}">\n'
        f'<noscript class="across">{_svg(across, label)}</noscript>\n'
        f'<noscript class="down">{_svg(down, label)}</noscript>\n</div>\n'
        f'<details><summary>CoNLL-U</summary><pre dir="ltr">\n{escape(columns)}\n</pre></details>\n'
        "</figure>\n"
    )


def _size(picture: Picture) -> str:
    return f"{picture.width:g} {picture.height:g}"


def _svg(picture: Picture, label: str) -> str:
    tag = opening_tag(picture.width, picture.height, label=label)
    return f"{tag}\n{picture.elements}</svg>"
