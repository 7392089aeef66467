"""Trees as one HTML page: to search, to go through with keys, to correct, to print.

Each sentence stands there twice in `noscript` elements: with its words in a row, and below one
another. Without a script a browser shows one of them. With one they are text that costs little: the
page's own script shows those that are in view, each in the form that fits.
The words of a sentence stand there as CoNLL-U, to be read and to be searched. The page loads
nothing, and its policy names style and script by their sums. Every text of data is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple

from seqtool.core.errors import counted
from seqtool.treebank.drawing.marked import MarkedSentence, columns_of
from seqtool.treebank.drawing.picture import Picture, draw, opening_tag
from seqtool.treebank.drawing.style import STYLE

_FOLDER = files("seqtool.treebank.drawing")


def opening(title: str, style: str, script: str, form_action: str = "'none'") -> str:
    """Return the head of a page that runs its own style and script, and loads nothing.

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
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}\n</style>\n</head>\n<body>\n"
    )


def closing(script: str) -> str:
    """Return the end of a page, with its script."""
    return f"<script>\n{script}\n</script>\n</body>\n</html>\n"


class Above(NamedTuple):
    """What a page has above its trees.

    Attributes:
        title: of the page.
        elements: HTML.
        style, script: its own; they come after those of the trees.
        form_action: where forms may be sent, as of `opening`.
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
    down: bool = False,
    above: Above | None = None,
) -> Iterator[str]:
    """Give the page in pieces, a sentence each; memory does not grow with them.

    Args:
        groups: the analyses of each sentence.
        beside: they stand side by side where the window is wide enough.
        down: words stand below one another, however wide the window is.
        above: what stands above them.
    """
    above = above or Above()
    hidden = f"noscript.{'across' if down else 'down'} {{ display: none }}\n"
    style = f"{(_FOLDER / 'page.css').read_text(encoding='utf-8')}{hidden}{above.style}{STYLE}"
    kind = ' class="beside"' if beside else ""
    scripts = [(_FOLDER / name).read_text(encoding="utf-8") for name in ("page.js", "edit.js")]
    script = "".join((*scripts, above.script)).strip()
    yield opening(above.title, style, script, above.form_action)
    chosen = 'value="down"'
    controls = _CONTROLS.replace(chosen, f"{chosen} selected") if down else _CONTROLS
    yield f"{above.elements}{controls}<main{kind}>\n"
    for number, group in enumerate(groups, start=1):
        yield _section(group, number)
    yield f'</main>\n<div id="tip" role="status" hidden></div>\n{closing(script)}'


_CONTROLS = r"""
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
<code>*</code> for any letters and <code>|</code> for either; <code>==</code> is just that text,
<code>!=</code> another one. One word must have all that is asked for, as
<code>upos=VERB feats.Tense=Past</code>, or, with <code>|</code> between spaces, one of two.</p>
<p><code>upos=VERB &gt; deprel=obj !&gt; deprel=nsubj</code>: all relations are of the first word.
<code>A &gt; B</code> has a child B, <code>A &lt; B</code> a head B; <code>&gt;&gt;</code>
<code>&lt;&lt;</code> however far; <code>A + B</code> is followed by B, <code>A - B</code> comes
after B; <code>++</code> <code>--</code> however far; <code>A &gt;++ B</code> has a child B later;
<code>!</code> is no such word, <code>*</code> any word; parentheses group.</p>
<p><kbd>/</kbd> search · <kbd>j</kbd> <kbd>k</kbd> next and previous sentence · in a picture,
<kbd>←</kbd> <kbd>→</kbd> (or <kbd>↑</kbd> <kbd>↓</kbd>) go along the words, the other two to the
head and to the first dependent, <kbd>Home</kbd> <kbd>End</kbd> <kbd>Esc</kbd></p>
<p>To correct: drag a word to its head, or press <kbd>h</kbd>, go to the head, <kbd>Enter</kbd>
(<kbd>0</kbd>: root) · <kbd>r</kbd> relation · <kbd>u</kbd> undo · save CoNLL-U.</p></details>
<form id="edit" hidden><b id="picked" dir="auto"></b>
<label>head <select id="head"></select></label>
<label>relation <input id="relation" list="relations" required pattern="\S+" size="14"
 autocomplete="off" spellcheck="false"></label><datalist id="relations"></datalist>
<button type="button" id="undo" disabled>undo</button>
<button type="button" id="save">save CoNLL-U</button>
<output id="edits" aria-live="polite"></output></form>
</header>
""".lstrip()


def _section(group: Sequence[MarkedSentence], number: int) -> str:
    first = group[0]
    figures = "".join(_figure(sentence, number) for sentence in group)
    # a text that was split has names that are numbers
    name = f" {escape(first.name)}" if first.name != str(number) else ""
    rank = f" · {escape(first.rank)}" if first.rank else ""
    marks = _marks(first) if len(group) == 1 or first.gold is None else ""
    kind = "errors" if first.gold is not None else "differences" if len(group) > 1 else ""
    num_marked = max(sentence.num_marked() for sentence in group)
    marked = f' data-marks="{kind}" data-marked="{num_marked}"' if kind else ""
    return (
        f'<section id="s{number}"{marked}>\n<h2><a href="#s{number}">{number}</a>'
        f'{name}{rank}{marks}</h2>\n<p dir="auto">{escape(first.text)}</p>\n'
        f'<div class="analyses">\n{figures}</div>\n</section>\n'
    )


def _marks(sentence: MarkedSentence) -> str:
    """Return how many arcs are wrong, or differ, if there is something to compare with."""
    num = sentence.num_marked()
    if sentence.gold is not None:
        text, kind = counted(num, "wrong arc"), "errors"
    elif sentence.source:
        text, kind = f"{counted(num, 'word')} differ" + ("s" if num == 1 else ""), "differences"
    else:
        return ""
    return f' · <span class="{kind if num else ""}">{text}</span>'


def _figure(sentence: MarkedSentence, number: int) -> str:
    picture, column = draw(sentence), draw(sentence, down=True)
    direction = "rtl" if picture.leftward else "ltr"
    caption = ""
    if sentence.source:
        marks = "" if sentence.gold is None else _marks(sentence)
        caption = f"<figcaption>{escape(sentence.source)}{marks}</figcaption>\n"
    label = f"tree of sentence {number}"
    columns, conllu = columns_of(sentence.sentence), sentence.sentence.to_conllu()
    # what is saved has the characters that are not safe to show
    raw = "" if conllu == f"{columns}\n\n" else f' data-conllu="{escape(json.dumps(conllu))}"'
    return (
        f'<figure>\n{caption}<div class="picture" dir="{direction}" tabindex="0" role="group" '
        f'aria-label="{label}" data-width="{picture.width:g}" data-across="{picture.height:g}" '
        f'data-down="{column.height:g}">\n'
        f'<noscript class="across">{_svg(picture, label)}</noscript>\n'
        f'<noscript class="down">{_svg(column, label)}</noscript>\n</div>\n'
        f'<details><summary>CoNLL-U</summary><pre dir="ltr"{raw}>\n'
        f"{escape(columns)}\n</pre></details>\n</figure>\n"
    )


def _svg(picture: Picture, label: str) -> str:
    return f"{opening_tag(picture.width, picture.height, label)}\n{picture.elements}</svg>"
