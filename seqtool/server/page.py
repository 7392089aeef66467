"""The page on which one types a text and sees its trees: a form above the page of trees.

Without a script the form works as well; with one, Enter sends it, and a short text stands in the
address, so that a link or the way back leads to its trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from seqtool.treebank.drawing.page import Above, page
from seqtool.treebank.drawing.rendering import grouped
from seqtool.treebank.sentence import Sentence

MAX_DRAWN = 200  # sentences of a page

_FOLDER = files("seqtool.server")


def page_of(
    sentences: Sequence[Sentence], text: str, models: Sequence[str], chosen: str, reason: str
) -> Iterator[str]:
    """Give the page with the trees of sentences, a sentence at a time.

    Args:
        sentences: with trees.
        text: as it was typed.
        models: the names of those that can draw trees of a text.
        chosen: the one that was, "" for the first.
        reason: why there are no trees, else "".
    """
    above = Above(
        title=_title(text),
        elements=_form(text, models, chosen, reason),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        script=(_FOLDER / "page.js").read_text(encoding="utf-8"),
        form_action="'self'",
    )
    return page(grouped([sentences], [""]), above=above)


def _title(text: str) -> str:
    """Return the beginning of a text, as the name of a tab and in the history."""
    words = " ".join(text.split())
    shown = words if len(words) <= 40 else f"{words[:40].rstrip()}…"
    return f"{shown} · Dependency trees" if shown else "Dependency trees"


def _form(text: str, models: Sequence[str], chosen: str, reason: str) -> str:
    options = "".join(
        f"<option{' selected' if name == chosen else ''}>{escape(name)}</option>" for name in models
    )
    choice = f'<label>model <select name="model">{options}</select></label>\n'
    errors = f'<p class="errors" role="alert">{escape(reason)}</p>\n' if reason else ""
    focus = "" if text.strip() else " autofocus"
    return (
        f'<form id="typed" action="./" method="post">\n<h1>Dependency trees</h1>\n'
        f'<textarea id="text" name="data" rows="1" dir="auto" required spellcheck="false"{focus} '
        'aria-label="text" aria-describedby="keys" placeholder="Type a sentence, or several">'
        # a line end right behind the tag is not the text's
        f"\n{escape(text)}</textarea>\n"
        f"<div>{choice if len(models) > 1 else ''}<button>Parse</button>\n"
        '<span id="keys" hidden><kbd>Enter</kbd> parses, <kbd>Shift</kbd> <kbd>Enter</kbd> begins '
        f"a line</span></div>\n{errors}</form>\n"
    )
