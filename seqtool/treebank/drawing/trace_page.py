"""The derivations of trees as one HTML page, to go through step by step.

All steps are listed, each with its partial tree, stack and buffer; without a script they stay so.
The page's own script shows one step of each sentence at a time, with buttons and keys. The page
loads nothing, and its policy names style and script by their sums. Every text of data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from rich.cells import cell_len

from seqtool.treebank.derivation import Hypothesis, Step, Trace
from seqtool.treebank.drawing.marked import printable
from seqtool.treebank.drawing.page import policy_of
from seqtool.treebank.drawing.picture import (
    FORM_LINE,
    TAG_LINE,
    WORD_CELL,
    Stages,
    draw_stages,
    opening_tag,
    text_element,
)
from seqtool.treebank.drawing.style import CLASS
from seqtool.treebank.drawing.style import STYLE as PICTURES
from seqtool.treebank.drawing.trace_text import Words, about, marked_of, percent

MAX_BOXES = 9  # of the words of a stack, and of a buffer
BOX_HEIGHT, BOX_GAP, BOX_ROOM = 26.0, 6.0, 18.0
LINE = 40.0  # from the stack to the buffer
NAMES = 64.0  # of stack and buffer

STYLE = (
    f"{PICTURES}\n"
    + """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fff; --faint: #59636e; --line: #d8dee4;
  --new: #0060a8; --stack: #b45f06; --buffer: #2e7d32 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #15191e; --faint: #9aa4af;
  --line: #333b44; --new: #5ab4e8; --stack: #e8a04c; --buffer: #7ccf80 } }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 70em; padding: 1em;
  color: var(--ink); background: var(--paper) }
h1 { font-size: 1.4em }
h2 { font-size: 1.1em; border-top: 1px solid var(--line); padding-top: 1em; margin-top: 2em }
h3 { font-size: 1em; margin: .4em 0 }
.about, caption, .none { color: var(--faint) }
ol { list-style: none; padding: 0 }
li.step { border-top: 1px solid var(--line); padding: .5em 0 1em }
.scroll { overflow-x: auto }
.tables { display: flex; flex-wrap: wrap; gap: 0 3em; align-items: flex-start }
table { border-collapse: collapse; font-size: .88em; margin: .4em 0 }
caption { text-align: left }
th, td { padding: 2px 12px 2px 0; text-align: left; border-bottom: 1px solid var(--line) }
th { font-weight: 600 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.path { font-weight: 600 }
.dropped { color: var(--faint) }
.controls { position: sticky; bottom: 0; background: var(--paper); padding: .5em 0 }
button { font: inherit; padding: .2em .8em; margin-right: .3em }
.seqtool-tree .name { font-size: 11px; text-anchor: start; fill: var(--faint) }
.new .arc { stroke: var(--new); stroke-width: 2 }
.new .arrow, .new .relation { fill: var(--new) }
.bar, .box { fill: none; stroke-width: 2 }
.on-stack { stroke: var(--stack) }
.in-buffer { stroke: var(--buffer) }
svg.shared { position: absolute; width: 0; height: 0 }
body.stepping li.step { display: none; border: 0 }
body.stepping li.step.current { display: block }
""".strip()
)

# the section that keys are for is the one that was used last; the first one at the beginning
SCRIPT = """
"use strict";
const sections = [...document.querySelectorAll("section.derivation")];
let active = sections[0];
function show(section, place) {
  const steps = [...section.querySelectorAll("li.step")];
  const now = Math.min(Math.max(place, 0), steps.length - 1);
  steps.forEach((step, i) => step.classList.toggle("current", i === now));
  section.dataset.place = String(now);
  section.querySelector("output").textContent = (now + 1) + " / " + steps.length;
}
function move(section, where) {
  const now = Number(section.dataset.place), last = section.querySelectorAll("li.step").length - 1;
  show(section, { first: 0, previous: now - 1, next: now + 1, last: last }[where]);
}
const keys = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last" };
for (const section of sections) {
  section.querySelector(".controls").hidden = false;
  show(section, 0);
  section.addEventListener("pointerdown", () => { active = section; });
  section.addEventListener("focusin", () => { active = section; });
  section.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.go) move(section, button.dataset.go);
    else document.body.classList.toggle("stepping");
  });
}
document.addEventListener("keydown", (event) => {
  if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey || !active) return;
  if (!document.body.classList.contains("stepping")) return;
  event.preventDefault();
  move(active, keys[event.key]);
});
document.body.classList.add("stepping");
""".strip()

_BUTTONS = "".join(
    f'<button type="button" data-go="{where}" title="{key}">{sign} {where}</button>'
    for where, sign, key in (
        ("first", "⇤", "Home"),
        ("previous", "←", "Left"),
        ("next", "→", "Right"),
        ("last", "⇥", "End"),
    )
)
_CONTROLS = (
    f'<div class="controls" hidden>{_BUTTONS}<output aria-live="polite"></output> '
    '<button type="button">one step, or all</button></div>\n'
)


def trace_page(traces: Iterable[Trace]) -> Iterator[str]:
    """Give the page in pieces, a sentence each; memory does not grow with them."""
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{policy_of(STYLE, SCRIPT)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>How trees are built</title>\n<style>\n{STYLE}\n</style>\n"
        "</head>\n<body>\n<h1>How trees are built</h1>\n"
    )
    for number, trace in enumerate(traces, start=1):
        yield from _section(trace, number)
    yield f"<script>\n{SCRIPT}\n</script>\n</body>\n</html>\n"


def _section(trace: Trace, number: int) -> Iterator[str]:
    marked, found = marked_of(trace), trace.derivation
    stages, words = draw_stages(marked), Words(marked)
    shared = f"words-{number}"
    yield (
        f'<section class="derivation">\n<h2>{escape(marked.name or str(number))}</h2>\n'
        f'<p dir="auto">{escape(marked.text)}</p>\n<p class="about">{escape(about(trace))}</p>\n'
        # a rule does not look beyond what is used elsewhere: it has the class itself
        f'<svg class="shared" aria-hidden="true"><defs><g id="{shared}" class="{CLASS}">\n'
        f"{stages.words}</g></defs></svg>\n<ol>\n"
    )
    made: list[int] = []  # words that have a head
    for place, step in enumerate(found.steps, start=1):
        chance = "no other is legal" if step.round is None else percent(step.probability)
        yield (
            f'<li class="step">\n<h3>{place}. {escape(printable(step.transition))} '
            f'<span class="about">{chance}</span></h3>\n'
        )
        new = None if step.arc is None else step.arc.word
        yield _picture(step, stages, words, shared, made, new)
        if new is not None:
            made.append(new)
        if step.round is not None:
            rounds = found.rounds[step.round] if found.beam > 1 else ()
            yield _tables(step, rounds, words)
        yield "</li>\n"
    yield '<li class="step">\n<h3>The tree</h3>\n'
    whole = opening_tag(stages.width, stages.height)
    yield f'<div class="scroll">{whole}<use href="#{shared}"/>{"".join(stages.arcs)}</svg></div>\n'
    if found.beam > 1 and found.rounds:
        yield _beam(found.rounds[-1], words, is_end=True)
    for built, put in trace.put_back:
        line = f"Put back: {words.arc(built)}, now {words.arc(put)}"
        yield f'<p dir="auto">{escape(line)}</p>\n'
    yield f"</li>\n</ol>\n{_CONTROLS}</section>\n"


def _picture(
    step: Step, stages: Stages, words: Words, shared: str, made: Sequence[int], new: int | None
) -> str:
    """Return the tree with the arc of a step, and the stack and buffer that it was chosen from.

    Args:
        step: what is shown.
        stages: the arcs.
        words: of the sentence.
        shared: the id of the elements of the words.
        made: the words that had a head before.
        new: the word that gets one.
    """
    elements = [f'<use href="#{shared}"/>', *(stages.arcs[word - 1] for word in made)]
    if new is not None:
        elements.append(f'<g class="new">{stages.arcs[new - 1]}</g>')
    y = stages.base + FORM_LINE + TAG_LINE + 5
    for kind, numbers in (("on-stack", step.stack), ("in-buffer", step.buffer)):
        for left, right in (stages.spans[word - 1] for word in numbers if word):
            elements.append(f'<path class="bar {kind}" d="M{left:g} {y:g}H{right:g}"/>')
    top = stages.height + 4
    widest = stages.width
    stack, buffer = list(step.stack), list(step.buffer)
    for name, kind, forms in (
        ("stack", "on-stack", _cut([words.forms[word] for word in reversed(stack)])[::-1]),
        ("buffer", "in-buffer", _cut([words.forms[word] for word in buffer])),
    ):
        elements.append(f'<text class="name" x="16" y="{top + BOX_ROOM:g}">{name}</text>')
        x = NAMES
        for form in forms:
            width = max(WORD_CELL * cell_len(form), WORD_CELL) + 16
            elements.append(
                f'<rect class="box {kind}" x="{x:g}" y="{top:g}" width="{width:g}" '
                f'height="{BOX_HEIGHT:g}" rx="4"/>'
            )
            elements.append(text_element("form", x + width / 2, top + BOX_ROOM, form))
            x += width + BOX_GAP
        widest = max(widest, x + BOX_GAP)
        top += LINE
    drawing = "".join(f"{element}\n" for element in elements)
    return f'<div class="scroll">{opening_tag(widest, top)}\n{drawing}</svg></div>\n'


def _cut(forms: list[str]) -> list[str]:
    """Return the first forms of a list, and how many more there are."""
    if len(forms) <= MAX_BOXES:
        return forms
    return [*forms[: MAX_BOXES - 1], f"+{len(forms) - MAX_BOXES + 1}"]


def _tables(step: Step, hypotheses: Sequence[Hypothesis], words: Words) -> str:
    """Return what a transition was chosen from: transitions, features and the beam."""
    chosen = [(step.transition, percent(step.probability), "path")]
    others = [(choice.transition, percent(choice.probability), "") for choice in step.others]
    rows = [
        _row([printable(name), share], kind, numbers=(1,)) for name, share, kind in chosen + others
    ]
    parts = [_table("legal transitions", ["transition", "probability"], rows)]
    if hypotheses:
        parts.append(_beam(hypotheses, words))
    seen = [(feature, words.value(feature)) for feature in step.features]
    rows = [_row([feature.place, feature.kind, value]) for feature, value in seen if value]
    if rows:
        parts.append(_table("what is looked at", ["place", "kind", "value"], rows))
    empty = list(dict.fromkeys(feature.place for feature, value in seen if not value))
    note = f'<p class="none">nothing stands in {escape(", ".join(empty))}</p>\n' if empty else ""
    return f'<div class="tables">\n{"".join(parts)}</div>\n{note}'


def _beam(hypotheses: Sequence[Hypothesis], words: Words, *, is_end: bool = False) -> str:
    rows = []
    for each in hypotheses:
        kind = "path" if each.is_on_path else "" if each.survives or is_end else "dropped"
        fate = kind
        if each.is_on_path:
            fate = "the tree" if is_end else "leads to the tree"
        cells = [f"{each.score:.4f}", printable(each.transition), words.top(each), fate]
        rows.append(_row(cells, kind, numbers=(0,)))
    return _table("the beam", ["score", "last transition", "stack | buffer", ""], rows)


def _table(caption: str, names: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    return (
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{''.join(rows)}</tbody></table>\n"
    )


def _row(cells: Sequence[str], kind: str = "", numbers: Sequence[int] = ()) -> str:
    inside = "".join(
        f'<td class="number">{escape(cell)}</td>'
        if place in numbers
        else f'<td dir="auto">{escape(cell)}</td>'
        for place, cell in enumerate(cells)
    )
    of_kind = f' class="{kind}"' if kind else ""
    return f"<tr{of_kind}>{inside}</tr>\n"
