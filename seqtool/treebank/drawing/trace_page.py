"""The derivations of trees as one HTML page, to go through step by step.

All steps are listed, each with its partial tree and what the terminal says of it; without a script
they stay so. The page's own script shows one step of each sentence at a time, with buttons and
keys. Every text of data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from seqtool.treebank.derivation import Step, Trace
from seqtool.treebank.drawing.marked import printable
from seqtool.treebank.drawing.page import closing, opening
from seqtool.treebank.drawing.picture import Picture, draw, opening_tag
from seqtool.treebank.drawing.style import CLASS
from seqtool.treebank.drawing.style import STYLE as PICTURES
from seqtool.treebank.drawing.trace_text import ShownTrace, note_of

_STYLE = f"""
{PICTURES}
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 70em; padding: 1em }}
@media (prefers-color-scheme: dark) {{ body {{ background: #15191e; color: #e6edf3 }} }}
h2 {{ font-size: 1.1em; border-top: 1px solid; padding-top: 1em; margin-top: 2em }}
h3 {{ font-size: 1em; margin: .4em 0 }}
ol {{ list-style: none; padding: 0 }}
.about, dt, .dropped {{ color: color-mix(in srgb, CanvasText 65%, Canvas) }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0 1em }}
dd {{ margin: 0; overflow-wrap: anywhere }}
.scroll {{ overflow-x: auto }}
.path {{ font-weight: 600 }}
td {{ padding-right: 1em }}
.controls {{ position: sticky; bottom: 0; background: Canvas }}
button {{ font: inherit; padding: .2em .8em }}
body.stepping li {{ display: none }}
body.stepping li.current {{ display: block }}
@media print {{ .controls {{ display: none }} body.stepping li {{ display: block }}
  li, svg {{ break-inside: avoid; max-width: 100%; height: auto }} }}
""".strip()

# the section that keys are for is the one that was used last; the first one at the beginning
_SCRIPT = """
"use strict";
const sections = [...document.querySelectorAll("section")];
let active = sections[0];
function show(section, where) {
  const steps = [...section.querySelectorAll("li")], end = steps.length - 1;
  const now = steps.findIndex((step) => step.classList.contains("current"));
  const previous = Math.max(now - 1, 0), next = Math.min(now + 1, end);
  const place = { first: 0, previous, next, last: end }[where];
  steps.forEach((step, i) => step.classList.toggle("current", i === place));
  section.querySelector("output").textContent = (place + 1) + " / " + steps.length;
}
for (const section of sections) {
  section.querySelector(".controls").hidden = false;
  show(section, "first");
  for (const kind of ["pointerdown", "focusin"]) {
    section.addEventListener(kind, () => { active = section; });
  }
  section.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.dataset.go) show(section, button.dataset.go);
    else if (button) document.body.classList.toggle("stepping");
  });
}
const keys = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last" };
document.addEventListener("keydown", (event) => {
  if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey || !active) return;
  if (!document.body.classList.contains("stepping")) return;
  event.preventDefault();
  show(active, keys[event.key]);
});
document.body.classList.add("stepping");
""".strip()

_CONTROLS = "".join(
    f'<button type="button" data-go="{where}" title="{key}">{sign} {where}</button> '
    for where, sign, key in (
        ("first", "⇤", "Home"),
        ("previous", "←", "Left"),
        ("next", "→", "Right"),
        ("last", "⇥", "End"),
    )
)


def trace_page(traces: Iterable[Trace]) -> Iterator[str]:
    """Give the page in pieces, a sentence each; memory does not grow with them."""
    yield opening("How trees are built", _STYLE, _SCRIPT) + "<h1>How trees are built</h1>\n"
    for number, trace in enumerate(traces, start=1):
        yield "".join(_section(ShownTrace(trace), number))
    yield closing(_SCRIPT)


def _section(shown: ShownTrace, number: int) -> Iterator[str]:
    marked, found = shown.marked, shown.found
    picture, shared = draw(marked), f"words-{number}"
    yield (
        f'<section class="derivation">\n<h2>{escape(marked.name or str(number))}</h2>\n'
        f'<p dir="auto">{escape(marked.text)}</p>\n<p class="about">{escape(shown.about())}</p>\n'
        # a rule does not look beyond what is used elsewhere: it has the class itself
        '<svg width="0" height="0" aria-hidden="true"><defs>'
        f'<g id="{shared}" class="{CLASS}">\n{picture.words}</g></defs></svg>\n<ol>\n'
    )
    made: list[int] = []  # words that have a head
    for place, step in enumerate(found.steps, start=1):
        new = 0 if step.arc is None else step.arc.word
        made += [new] * (new > 0)
        yield (
            f"<li>\n<h3>{place}. {escape(printable(step.transition))} "
            f'<span class="about">{escape(note_of(step))}</span></h3>\n'
            f"{_tree(picture, shared, made, new)}{_parts(shown, step)}</li>\n"
        )
    yield f"<li>\n<h3>The tree</h3>\n{_tree(picture, shared, range(1, len(marked) + 1), 0)}"
    if found.rounds:
        yield _beam(shown, len(found.rounds) - 1)
    for line in shown.put_back():
        yield f'<p dir="auto">{escape(line)}</p>\n'
    yield (
        f'</li>\n</ol>\n<div class="controls" hidden>{_CONTROLS}<output aria-live="polite">'
        '</output> <button type="button">one step, or all</button></div>\n</section>\n'
    )


def _tree(picture: Picture, shared: str, words: Sequence[int], new: int) -> str:
    """Return the arcs of some words, that of the `new` one marked."""
    arcs = ""
    for word in words:
        kind = ' class="lit"' if word == new else ""
        arcs += f"<g{kind}>{picture.lines[word - 1]}{picture.labels[word - 1]}</g>\n"
    tag = opening_tag(picture.width, picture.height)
    return f'<div class="scroll">{tag}\n<use href="#{shared}"/>{arcs}</svg></div>\n'


def _parts(shown: ShownTrace, step: Step) -> str:
    """Return what a transition was chosen from."""
    parts = "".join(
        f'<dt>{name}</dt><dd dir="auto">{escape(" ".join(texts))}</dd>\n'
        for name, texts in shown.parts(step)
    )
    return f"<dl>\n{parts}</dl>\n" + ("" if step.round is None else _beam(shown, step.round))


def _beam(shown: ShownTrace, number: int) -> str:
    """Return the hypotheses of a round, if more than one is ever followed."""
    rows = ""
    for each, cells in shown.beam(number):
        kind = "path" if each.is_on_path else "" if each.survives else "dropped"
        inside = "".join(f'<td dir="auto">{escape(cell)}</td>' for cell in cells)
        rows += f'<tr class="{kind}">{inside}</tr>\n'
    return f"<table><caption>the beam</caption>\n{rows}</table>\n" if rows else ""
