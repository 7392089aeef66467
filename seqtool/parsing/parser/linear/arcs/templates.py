"""What an arc is scored by: templates, as data, and the keys of the words that they name.

A template names parts of words, `address.atom`: "h.form d.tag" is the form of the head with the tag
of the dependent. Each template makes one indicator feature of an arc, and a second one that also
has the direction of the arc and its length (McDonald et al. 2005, table 1; what they call a part of
speech is here `tag`, and there are more atoms).

    addresses  h, d: head and dependent;  h-1, h+1, d-1, d+1: the words beside them;
               b: each different tag between the two, in turn;
               of a label: dl, dr the outermost children of d; s: the sibling of d between h and
               d that is next to d; g: the head of h
    atoms      form (lower case), lemma, prefix (3 characters), suffix (3), shape,
               tag (UPOS; XPOS where no UPOS is read), fine (XPOS beside UPOS), feats
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numba import types

from seqtool.core.arrays import Ints, Longs
from seqtool.parsing.encoding.features import FIELDS
from seqtool.parsing.encoding.sparse import FACTOR

# atom -> the groups of symbols that it may be, of which the first that is read is taken
ATOMS = {
    "form": ("lower",),
    "lemma": ("lemma",),
    "prefix": ("prefix3",),
    "suffix": ("suffix3",),
    "shape": ("shape",),
    "tag": ("upos", "xpos"),
    "fine": ("xpos",),
    "feats": ("feats",),
}
TAG = "tag"
ADDRESSES = ("h", "d", "h-1", "h+1", "d-1", "d+1", "b", "dl", "dr", "s", "g")
H, D, H_PREV, H_NEXT, D_PREV, D_NEXT, B, D_LEFT, D_RIGHT, SIBLING, GRAND = range(len(ADDRESSES))

# of arcs, McDonald et al. 2005: words and tags of both, then the tags around them
ARC_TEMPLATES = (
    *("h.form h.tag", "h.form", "h.tag", "d.form d.tag", "d.form", "d.tag"),
    *("h.form h.tag d.form d.tag", "h.tag d.form d.tag", "h.form d.form d.tag"),
    *("h.form h.tag d.tag", "h.form h.tag d.form", "h.form d.form", "h.tag d.tag"),
    *("h.tag h+1.tag d-1.tag d.tag", "h-1.tag h.tag d-1.tag d.tag"),
    *("h.tag h+1.tag d.tag d+1.tag", "h-1.tag h.tag d.tag d+1.tag"),
    *("h.tag h+1.tag d.tag", "h-1.tag h.tag d.tag", "h.tag d-1.tag d.tag", "h.tag d.tag d+1.tag"),
    # what other columns and the parts of forms say
    *("h.fine", "d.fine", "h.fine d.fine", "h.fine d.tag", "h.tag d.fine"),
    *("h.lemma", "d.lemma", "h.lemma d.lemma", "h.lemma d.tag", "h.tag d.lemma"),
    *("h.fine d-1.fine d.fine", "h.fine h+1.fine d.fine"),
    *("h.tag h.feats", "d.tag d.feats", "h.tag h.feats d.tag d.feats", "h.tag d.tag d.feats"),
    *("h.tag h.feats d.tag", "h.tag d.suffix", "h.suffix d.tag", "h.suffix d.suffix"),
    *("d.prefix", "h.prefix", "h.tag d.prefix", "d.shape", "h.shape d.shape"),
)
# for each different tag between head and dependent
BETWEEN_TEMPLATES = ("h.tag b.tag d.tag",)
# of the label of an arc, when the tree is known
LABEL_TEMPLATES = (
    *("d.form", "d.tag", "d.lemma", "d.fine", "d.suffix", "d.prefix", "d.shape"),
    *("d.form d.tag", "d.tag d.feats", "d.tag d.fine d.feats"),
    *("h.form", "h.tag", "h.lemma", "h.fine", "h.suffix", "h.form h.tag", "h.tag h.feats"),
    *("h.tag d.tag", "h.form d.tag", "h.tag d.form", "h.lemma d.lemma", "h.lemma d.tag"),
    *("h.tag d.lemma", "h.fine d.fine", "h.tag d.tag d.feats", "h.tag h.feats d.tag d.feats"),
    *("h.form h.tag d.form d.tag", "h.tag d.suffix", "h.suffix d.tag", "h.suffix d.suffix"),
    *("h.tag d-1.tag d.tag", "h.tag d.tag d+1.tag", "d-1.tag d.tag d+1.tag", "d-1.form d.tag"),
    *("d.tag d+1.form", "h.tag h+1.tag d.tag", "h-1.tag h.tag d.tag"),
    *("h.tag d.tag dl.tag", "h.tag d.tag dl.form", "h.lemma d.tag dl.form", "d.form dl.form"),
    *("h.tag d.tag dr.tag", "h.tag d.tag dr.form", "dl.tag d.tag dr.tag"),
    *("h.tag d.tag s.tag", "h.lemma d.tag s.tag", "h.tag d.tag s.form", "g.tag h.tag d.tag"),
    *("g.form h.tag d.tag", "g.tag h.form d.tag"),
)


ARCS, BETWEEN, LABELS = range(3)  # the families of templates
FAMILIES = (ARC_TEMPLATES, BETWEEN_TEMPLATES, LABEL_TEMPLATES)


class Features(NamedTuple):
    """What features are made of, as compiled code reads it.

    Attributes:
        families: int32 [4]: family f has the templates from families[f] to below families[f + 1].
        begins: int32 [templates + 1]: template t has the parts from begins[t] to below the next.
        states: int64 [templates], what the hash of the features of each begins with.
        addresses: int32 [parts], places in `ADDRESSES`.
        columns: int32 [parts], of `values`.
        values: int32 [types, columns], the symbols of the types that are known; see `Values`.
        tag: the column by which the words between are told apart; -1 without one.
        num_bits: of a feature's place among the weights.
    """

    families: Ints
    begins: Ints
    states: Longs
    addresses: Ints
    columns: Ints
    values: Ints
    tag: int
    num_bits: int


_ints, _int = types.int32[::1], types.int64
features_type = types.NamedTuple(
    (_ints, _ints, types.int64[::1], _ints, _ints, types.int32[:, ::1], _int, _int), Features
)


def parse_template(text: str) -> list[tuple[int, str]]:
    """Return the parts of a template, each a place in `ADDRESSES` and an atom.

    Raises:
        ValueError: it names what is not known; the message quotes it.
    """
    parts = []
    for part in text.split():
        address, _, atom = part.partition(".")
        if address not in ADDRESSES or atom not in ATOMS:
            raise ValueError(f"the template {text!r} names {part!r}, which is not known")
        parts.append((ADDRESSES.index(address), atom))
    return parts


def compile_templates(read: Mapping[str, str], hash_bits: int) -> Features:
    """Return the features of those templates of which every atom is read; no type is known yet.

    Args:
        read: see `atoms_of`; an atom's column is its place among them.
        hash_bits: 2 to the power of so many features have a weight of their own.
    """
    columns = {atom: column for column, atom in enumerate(read)}
    kept = [  # of each family: the number of a template, whatever else is read, and its parts
        [
            (number, parts)
            for number, parts in enumerate(map(parse_template, texts))
            if columns.keys() >= {atom for _, atom in parts}
        ]
        for texts in FAMILIES
    ]
    flat = [pair for rows in kept for _, parts in rows for pair in parts]
    return Features(
        families=np.cumsum([0, *map(len, kept)], dtype=np.int32),
        begins=np.cumsum([0, *(len(parts) for rows in kept for _, parts in rows)], dtype=np.int32),
        # far from each other, so that no symbol takes the number of a template to that of another
        states=FACTOR
        * np.asarray(
            [family << 20 | number for family, rows in enumerate(kept, 1) for number, _ in rows],
            np.int64,
        ),
        addresses=np.asarray([address for address, _ in flat], np.int32),
        columns=np.asarray([columns[atom] for _, atom in flat], np.int32),
        values=np.empty((0, len(columns)), np.int32),
        tag=columns.get(TAG, -1),
        num_bits=hash_bits,
    )


def atoms_of(fields: Iterable[str]) -> dict[str, str]:
    """Return the atoms that a parser of some fields reads, each with its group of symbols."""
    known = {name for field in fields for name in FIELDS[field]}
    found: dict[str, str] = {}
    for atom, names in ATOMS.items():
        group = next((name for name in names if name in known), None)
        if group is not None and group not in found.values():
            found[atom] = group
    return found
