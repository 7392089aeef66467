"""The styles of pictures of trees, for light and dark screens and for paper.

Every rule begins with the class of the pictures, so that none holds outside them. Colours stand in
the rules as they are: programs that draw an SVG without a browser know no variables.
"""

from __future__ import annotations

CLASS = "seqtool-tree"  # of every picture

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "faint": "#59636e",
    "line": "#6e7781",
    "wrong": "#c62828",
    "gold": "#2e7d32",
    "differs": "#b45309",
    "lit": "#0060a8",
}
DARK = {
    "paper": "#15191e",
    "ink": "#e6edf3",
    "faint": "#9aa4af",
    "line": "#8b949e",
    "wrong": "#ff8a80",
    "gold": "#7ccf80",
    "differs": "#f0a35e",
    "lit": "#6cb8f0",
}
_SHAPES = """
text { font: 11px system-ui, sans-serif; text-anchor: middle }
.form { font-size: 16px }
.surface, .source { font-size: 13px }
.starts { text-anchor: start }
.ends { text-anchor: end }
.arc, .bracket { fill: none; stroke-width: 1.2 }
.ring { fill: none; stroke: none; stroke-width: 1.5 }
.wrong .arc, .differs .arc, .lit .arc { stroke-width: 1.8 }
.gold .arc { stroke-dasharray: 4 3 }
.hit .form { font-weight: bold }
""".strip()


def _inside(rules: str) -> str:
    """Return rules that hold inside a picture only."""
    parts = (rule.partition(" {") for rule in rules.splitlines())
    return "\n".join(
        ", ".join(f".{CLASS} {selector}" for selector in selectors.split(", ")) + " {" + rest
        for selectors, _, rest in parts
    )


def _colours(of: dict[str, str]) -> str:
    """Return the rules of colours inside a picture, and the ground of one that is a file."""
    marked = "".join(
        f".{kind} .arc {{ stroke: {of[kind]} }}\n"
        f".{kind} .arrow, .{kind}.relation {{ fill: {of[kind]} }}\n"
        for kind in ("wrong", "gold", "differs", "lit")
    )
    rules = (
        f"text {{ fill: {of['ink']} }}\n.paper {{ fill: {of['paper']} }}\n"
        f".tag, .surface, .source {{ fill: {of['faint']} }}\n"
        f".arc, .bracket {{ stroke: {of['line']} }}\n.arrow {{ fill: {of['line']} }}\n"
        f"{marked}.hit .form {{ fill: {of['lit']} }}\n"
        f".hit .ring, .lit .ring {{ stroke: {of['lit']} }}"
    )
    return f"{_inside(rules)}\n.{CLASS}:root {{ background: {of['paper']} }}"


STYLE = "\n".join(
    (
        # where a sentence from right to left stands, no tag is turned; and a browser that darkens
        # pages is told that this one has dark colours of its own
        f".{CLASS} {{ direction: ltr; color-scheme: light dark }}",
        _inside(_SHAPES),
        _colours(LIGHT),
        f"@media (prefers-color-scheme: dark) {{\n{_colours(DARK)}\n}}",
        # paper is white, whatever the screen is
        f"@media print {{\n{_colours(LIGHT)}\n}}",
    )
)
