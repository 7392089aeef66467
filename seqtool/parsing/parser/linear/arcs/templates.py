"""What an arc is scored by: templates, as data, and the keys of the words that they name.

A template names parts of words, `address.atom`: "h.form d.tag" is the form of the head with the tag
of the dependent. Each template makes one indicator feature of an arc, and a second one that also
has the direction of the arc and its length (McDonald et al. 2005, table 1; what they call a part of
speech is here `tag`, and there are more atoms).

    addresses  h, d: head and dependent;  h-1, h+1, d-1, d+1: the words beside them;
               b: each different tag between the two, in turn;
               of a label: dl, dr the outermost children of d, s the sibling between, g the head's
    atoms      form (lower case), lemma, prefix (3 characters), suffix (3), shape,
               tag (UPOS; XPOS where no UPOS is read), fine (XPOS beside UPOS), feats
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core import types
from seqtool.core.arrays import Ints
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.parsing.encoding.features import FIELDS, Types

UnsignedLongs = npt.NDArray[np.uint64]

ATOMS = ("form", "lemma", "prefix", "suffix", "shape", "tag", "fine", "feats")
TAG = ATOMS.index("tag")
# atom -> the groups of symbols that it may be, the first one that the parser reads
_GROUPS = {
    "form": ("lower",),
    "lemma": ("lemma",),
    "prefix": ("prefix3",),
    "suffix": ("suffix3",),
    "shape": ("shape",),
    "tag": ("upos", "xpos"),
    "fine": ("xpos",),
    "feats": ("feats",),
}
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
        salts: uint64 [templates], what tells the features of each from those of others.
        begins: int32 [templates + 1]: template t has the parts from begins[t] to below the next.
        addresses, atoms: int32 [parts], places in `ADDRESSES` and `ATOMS`.
        factors: uint64 [parts], odd numbers: the same words in other parts are other features.
        keys: uint64 [types, atoms], a number for each symbol of the types that are known.
        shift: 64 less the bits of a feature's place among the weights.
    """

    families: Ints
    salts: UnsignedLongs
    begins: Ints
    addresses: Ints
    atoms: Ints
    factors: UnsignedLongs
    keys: UnsignedLongs
    shift: np.uint64

    def with_types(self, known: Types, read: Mapping[int, str]) -> Features:
        """Return the same with the types that were met since the last time.

        Args:
            known: all types.
            read: see `atoms_of`.
        """
        begin = len(self.keys)
        if begin == len(known):
            return self
        lexical, tags = known.arrays(begin)
        symbols = np.zeros((len(lexical), len(ATOMS)), np.uint64)
        for atom, group in read.items():
            is_lexical = group in known.lexical.groups
            table, rows = (known.lexical, lexical) if is_lexical else (known.tags, tags)
            first, last = table.range_of(group)
            # a row has one symbol of the group; NONE and ROOT are alone in theirs, and come first
            inside = (rows >= first) & (rows <= last)
            column = np.where(inside.any(axis=1), inside.argmax(axis=1), 0)
            symbols[:, atom] = rows[np.arange(len(rows)), column]
        places = np.arange(len(ATOMS), dtype=np.uint64) << np.uint64(32)
        return self._replace(keys=np.concatenate((self.keys, mixed(symbols + places))))

    def without_types(self) -> Features:
        """Return the same without any type."""
        return self._replace(keys=np.empty((0, len(ATOMS)), np.uint64))


_ints, _longs = types.int32[::1], types.uint64[::1]
features_type = types.NamedTuple(
    (*(_ints, _longs, _ints, _ints, _ints, _longs), types.uint64[:, ::1], types.uint64), Features
)


def parse_template(text: str) -> list[tuple[int, int]]:
    """Return the parts of a template, each a place in `ADDRESSES` and one in `ATOMS`.

    Raises:
        ConfigError: it names what is not known; the message quotes it.
    """
    parts = []
    for part in text.split():
        address, _, atom = part.partition(".")
        for name, known in ((address, ADDRESSES), (atom, ATOMS)):
            if name not in known:
                raise ConfigError(
                    f"the template {text!r} names {name!r}", hint=did_you_mean(name, known)
                )
        parts.append((ADDRESSES.index(address), ATOMS.index(atom)))
    if not parts:
        raise ConfigError("a template is empty", hint="name one part or more, as in `h.form d.tag`")
    return parts


def compile_templates(
    read: Iterable[int], hash_bits: int, families: Sequence[Sequence[str]] = FAMILIES
) -> Features:
    """Return the features of those templates of which every atom is read; no type is known yet.

    Args:
        read: places in `ATOMS`.
        hash_bits: 2 to the power of so many features have a weight of their own.
        families: the templates.
    """
    atoms = set(read)
    kept = [  # of each family: the number of a template, whatever else is read, and its parts
        [
            (number, parts)
            for number, parts in enumerate(map(parse_template, texts))
            if atoms.issuperset(atom for _, atom in parts)
        ]
        for texts in families
    ]
    numbers = [family << 20 | number for family, rows in enumerate(kept) for number, _ in rows]
    lengths = [len(parts) for rows in kept for _, parts in rows]
    flat = [pair for rows in kept for _, parts in rows for pair in parts]
    within = [place for length in lengths for place in range(length)]
    return Features(
        families=np.cumsum([0, *map(len, kept)], dtype=np.int32),
        salts=mixed(np.asarray(numbers, np.uint64)),
        begins=np.cumsum([0, *lengths], dtype=np.int32),
        addresses=np.asarray([address for address, _ in flat], np.int32),
        atoms=np.asarray([atom for _, atom in flat], np.int32),
        factors=mixed(np.asarray(within, np.uint64) + np.uint64(1 << 40)) | np.uint64(1),
        keys=np.empty((0, len(ATOMS)), np.uint64),
        shift=np.uint64(64 - hash_bits),
    )


def mixed(numbers: UnsignedLongs) -> UnsignedLongs:
    """Return numbers whose bits look like chance (Steele et al. 2014, SplitMix64)."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def atoms_of(fields: Iterable[str]) -> dict[int, str]:
    """Return what a parser of some fields reads: places in `ATOMS`, each with its group."""
    known = {name for field in fields for name in FIELDS[field]}
    found: dict[int, str] = {}
    for atom, names in enumerate(map(_GROUPS.__getitem__, ATOMS)):
        group = next((name for name in names if name in known), None)
        if group is not None and group not in found.values():
            found[atom] = group
    return found
