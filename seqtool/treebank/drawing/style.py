"""The styles of pictures of trees, for light and dark screens and for paper.

Every rule begins with the class of the pictures, so that none holds outside them. Colours stand in
the rules as they are: programs that draw an SVG without a browser know no variables.
"""

from __future__ import annotations

from typing import NamedTuple

CLASS = "seqtool-tree"  # of every picture: its styles hold inside it, and nowhere else


class Colours(NamedTuple):
    """Of a picture on a light or a dark ground."""

    paper: str
    ink: str
    faint: str
    line: str
    wrong: str
    gold: str
    differs: str
    hit: str

    def rules(self) -> str:
        """Return the rules of CSS that use them."""
        marked = "\n".join(
            f".{kind} .arc {{ stroke: {colour} }}\n"
            f".{kind} .arrow, .{kind}.relation {{ fill: {colour} }}"
            for kind, colour in (
                ("wrong", self.wrong),
                ("gold", self.gold),
                ("differs", self.differs),
                ("lit", self.hit),
            )
        )
        return (
            f"text {{ fill: {self.ink} }}\n.paper {{ fill: {self.paper} }}\n"
            f".tag, .surface, .number, .source {{ fill: {self.faint} }}\n"
            f".arc, .bracket {{ stroke: {self.line} }}\n.arrow {{ fill: {self.line} }}\n"
            f"{marked}\n.hit .form {{ fill: {self.hit} }}\n"
            f".hit .ring, .lit .ring {{ stroke: {self.hit} }}"
        )


LIGHT = Colours(
    paper="#ffffff",
    ink="#1f2328",
    faint="#59636e",
    line="#6e7781",
    wrong="#c62828",
    gold="#2e7d32",
    differs="#b45309",
    hit="#0060a8",
)
DARK = Colours(
    paper="#15191e",
    ink="#e6edf3",
    faint="#9aa4af",
    line="#8b949e",
    wrong="#ff8a80",
    gold="#7ccf80",
    differs="#f0a35e",
    hit="#6cb8f0",
)
# where a reader forces colours: those of the system, and what is marked by its lines
_FORCED = Colours(
    paper="Canvas",
    ink="CanvasText",
    faint="CanvasText",
    line="CanvasText",
    wrong="LinkText",
    gold="CanvasText",
    differs="LinkText",
    hit="Highlight",
)
# pixels, of the letters of each kind of text
SIZES = {"form": 16, "tag": 11, "relation": 11, "number": 11, "surface": 13, "source": 13}
_SHAPES = "\n".join(
    [
        "text { font-family: system-ui, sans-serif; text-anchor: middle }",
        *(f".{kind} {{ font-size: {size}px }}" for kind, size in SIZES.items()),
    ]
)
_SHAPES += """
.starts { text-anchor: start }
.ends { text-anchor: end }
.arc, .bracket { fill: none; stroke-width: 1.2 }
.ring { fill: none; stroke: none; stroke-width: 1.5 }
.wrong .arc, .differs .arc, .lit .arc { stroke-width: 1.8 }
.gold .arc { stroke-dasharray: 4 3 }
.hit .form { font-weight: bold }
""".rstrip()


def _inside(rules: str) -> str:
    """Return rules that hold inside a picture only."""
    parts = (rule.partition(" {") for rule in rules.splitlines())
    return "\n".join(
        ", ".join(f".{CLASS} {selector}" for selector in selectors.split(", ")) + " {" + rest
        for selectors, _, rest in parts
    )


def _rules(colours: Colours) -> str:
    """Return the rules of colours inside a picture, and the ground of one that is a file."""
    return f"{_inside(colours.rules())}\n.{CLASS}:root {{ background: {colours.paper} }}"


_FAINT = _inside(
    ".tag, .surface, .number, .source { fill: color-mix(in srgb, CanvasText 65%, Canvas) }"
)
STYLE = "\n".join(
    (
        # where a sentence from right to left stands, no tag is turned; and a browser that darkens
        # pages is told that this one has dark colours of its own
        f".{CLASS} {{ direction: ltr; color-scheme: light dark }}",
        _inside(_SHAPES),
        _rules(LIGHT),
        # a browser that darkens pages on a light screen turns the colours of the system only
        f"@supports (color-scheme: dark) {{ .{CLASS} text {{ fill: CanvasText }} }}",
        f"@supports (color-scheme: dark) {{ {_FAINT} }}",
        f"@media (prefers-color-scheme: dark) {{\n{_rules(DARK)}\n}}",
        f"@media (forced-colors: active) {{\n.{CLASS} {{ forced-color-adjust: none }}\n"
        f"{_rules(_FORCED)}\n}}",
        # paper is white, whatever the screen is
        f"@media print {{\n{_rules(LIGHT)}\n}}",
        # A browser that darkens pages turns text and ground, and no shapes: light text would stand
        # on white paper. Programs that know no grounds do not know this either.
        f"@supports (color-scheme: dark) {{ .{CLASS}:root .paper {{ fill: none }} }}",
    )
)
