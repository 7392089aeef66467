"""The vocabulary: which symbols a model knows, and their ids; `vocabulary.json` of every model.

A language model has one table of V symbols (V counts `<unk>` and `</s>`, not `<s>`, as KenLM counts
it). Their ids:

    0        <unk>   every symbol outside the vocabulary
    1        </s>    the end of a sentence
    2..V-1   the symbols, most frequent first, ties in order of first occurrence
    V        <s>     conditions the first token and is never predicted, so it owns no row

A segmenter, tagger or parser has several tables, each under a name. An entry is a symbol, or a
tuple of texts and numbers, such as the UPOS, XPOS and FEATS of a bundle; its place is its number.

The file is one JSON object:

    {"format_version": 1, "symbols": ["<unk>", "</s>", ...], "counts": [...]}
    {"format_version": 1, "tables": {"arc_labels": [...], ...}, "extra": {...}}
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from seqtool.core import storage
from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, DataError, ModelError, counted

UNK, EOS, BOS = "<unk>", "</s>", "<s>"
UNK_ID, EOS_ID = 0, 1
NUM_SPECIALS = 2
FORMAT_VERSION = 1
MAX_BYTES = 1 << 31  # of the file: tens of millions of symbols
BLANKS = " \t\r\n"  # what separates words; a no-break space, for example, belongs to its word

SpecialTokens = Literal["refuse", "unknown", "skip"]  # what `<s>` and `</s>` as words become
Entry = str | tuple[str | int, ...]


def rank_symbols(
    counts: npt.NDArray[np.int64], *, max_size: int | None = None, min_count: int = 1
) -> npt.NDArray[np.int64]:
    """Return which symbols a vocabulary keeps, the most frequent first; a ConfigError if none.

    The counts are in order of first occurrence, which decides ties. The size is that of the
    vocabulary, its two specials included.
    """
    if max_size is not None and max_size <= NUM_SPECIALS:
        what = f"vocab-size is {max_size}, but the two special symbols need room"
        raise ConfigError(what, hint=f"give at least {NUM_SPECIALS + 1}")
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    return order if max_size is None else order[: max_size - NUM_SPECIALS]


class Vocabulary:
    """Symbols and their ids, closed once built.

    Args:
        symbols: all symbols by id; the first two are `<unk>` and `</s>`, and `<s>` is not there.
        counts: how often each occurred in the training text (for `<unk>`: what it stands for);
            zeros when not given.
        tables: the named tables of a segmenter, tagger or parser, which has no `symbols`.
        extra: what such a model needs beside them, as JSON holds it.
        from_file: they are what `save` wrote, so that looking for a symbol that occurs twice can
            wait until the first id is asked for: half a million of them open in half the time.
    """

    def __init__(
        self,
        symbols: Sequence[str] = (),
        counts: Sequence[int] | None = None,
        *,
        tables: Mapping[str, Iterable[Entry]] | None = None,
        extra: Mapping[str, Any] | None = None,
        from_file: bool = False,
    ) -> None:
        self.tables = {name: tuple(entries) for name, entries in (tables or {}).items()}
        self.extra = dict(extra or {})
        if tuple(symbols[:NUM_SPECIALS]) != (UNK, EOS) and (symbols or not tables):
            what = f"a vocabulary begins with {UNK} and {EOS}"
            raise ConfigError(what, hint="build it with from_counts")
        self.symbols = list(symbols)
        given = [0] * len(self.symbols) if counts is None else counts
        self.counts = list(given if from_file else map(int, given))
        if len(self.counts) != len(self.symbols):
            what = f"{len(self.symbols)} symbols, but {len(self.counts)} counts"
            raise ConfigError(what, hint="give one count per symbol")
        if not from_file:
            self._ids  # noqa: B018 - looks for what occurs twice

    @cached_property
    def _ids(self) -> dict[str, int]:
        ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(ids) != len(self.symbols) or BOS in ids:
            raise ConfigError("a symbol occurs twice, or <s> is listed", hint="list each once")
        return ids

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        max_size: int | None = None,
        min_count: int = 1,
        num_sentences: int = 0,
    ) -> Vocabulary:
        """Build a vocabulary from counts, keeping the most frequent symbols.

        Args:
            counts: symbol -> count, in order of first occurrence; a `<unk>` in it adds to the
                unknown mass.
            max_size: keep at most this many symbols, the two specials included.
            min_count: drop symbols rarer than this.
            num_sentences: the count of `</s>`.
        """
        words = [symbol for symbol in counts if symbol not in (UNK, EOS, BOS)]
        word_counts = np.array([counts[word] for word in words], np.int64)
        kept = rank_symbols(word_counts, max_size=max_size, min_count=min_count)
        unknown = counts.get(UNK, 0) + int(word_counts.sum() - word_counts[kept].sum())
        return cls(
            [UNK, EOS, *(words[i] for i in kept)],
            [unknown, num_sentences + counts.get(EOS, 0), *word_counts[kept].tolist()],
        )

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ids

    def __eq__(self, other: object) -> bool:
        names = ("symbols", "tables", "extra")
        return isinstance(other, Vocabulary) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    def __hash__(self) -> int:
        return hash((*self.symbols, *self.tables))

    def __repr__(self) -> str:
        if self.tables:
            sizes = [*map(len, self.tables.values())]
            return f"Vocabulary({sum(sizes)} entries in {counted(len(sizes), 'table')})"
        return f"Vocabulary({len(self)} symbols)"

    @property
    def bos_id(self) -> int:
        """The id of `<s>`: one past the last row."""
        return len(self.symbols)

    def id(self, symbol: str) -> int:
        """Return the id of a symbol, `UNK_ID` for one outside the vocabulary."""
        return self._ids.get(symbol, UNK_ID)

    def encode(self, symbols: Iterable[str]) -> Ids:
        """Return the ids of symbols, `UNK_ID` for those outside."""
        find = self._ids.get
        return np.array([find(symbol, UNK_ID) for symbol in symbols], dtype=np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the symbols of ids; `bos_id` gives `<s>`."""
        return [BOS if i == len(self.symbols) else self.symbols[i] for i in ids]

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a table of texts, each of which has a place in a line of CoNLL-U.

        Raises:
            KeyError: there is no such table.
            TypeError, ValueError: an entry is none.
        """
        self._check_table(name, str, self.tables[name])
        return self.tables[name]  # type: ignore[return-value]

    def rows(self, name: str) -> tuple[tuple[str | int, ...], ...]:
        """Return a table of rows of texts and numbers; errors as of `texts`."""
        self._check_table(name, tuple, (part for row in self.tables[name] for part in row))
        return self.tables[name]  # type: ignore[return-value]

    def _check_table(self, name: str, kind: type, parts: Iterable[Any]) -> None:
        if set(map(type, self.tables[name])) - {kind}:
            raise TypeError(f"{name} holds other than entries of type {kind.__name__}")
        text = "".join(part for part in parts if isinstance(part, str))
        # what would end a column or a line; characters are not written by themselves
        if name != "characters" and re.search("[\t\n\r]", text):
            raise ValueError(f"{name} holds a tab or a line end")

    def nearest(self, symbol: str, num: int = 3) -> list[str]:
        """Return symbols of the vocabulary that look like this one, the nearest first.

        One that is the same in lower case comes before all others.
        """
        near = difflib.get_close_matches(symbol, self.symbols[NUM_SPECIALS:], n=num, cutoff=0.7)
        lower = symbol.lower()
        if lower == symbol or lower not in self:
            return near
        return [lower, *(other for other in near if other != lower)][:num]

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as JSON."""
        content: dict[str, Any] = {"format_version": FORMAT_VERSION}
        if self.tables:
            content |= {"tables": self.tables, "extra": self.extra}
        else:
            content |= {"symbols": self.symbols, "counts": self.counts}
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read what `save` wrote.

        Raises:
            ModelError: the file is missing, damaged or of another format version.
        """
        path, hint = Path(path), "prepare or train it again"
        try:
            content = storage.read_object(path, MAX_BYTES)
            if (version := content["format_version"]) != FORMAT_VERSION:
                what = f"made by another version of seqtool (format {version})"
                raise ModelError(what, hint=hint, path=path)
            if "tables" in content:
                tables = {name: _entries(table) for name, table in content["tables"].items()}
                return cls(tables=tables, extra=content["extra"], from_file=True)
            symbols, counts = content["symbols"], content["counts"]
            for values, kind in ((symbols, str), (counts, int)):
                if not (isinstance(values, list) and set(map(type, values)) <= {kind}):
                    raise TypeError("symbols or counts are none")
            if not 0 <= min(counts, default=0) <= max(counts, default=0) < 2**62:
                raise ValueError("a count is none")
            return cls(symbols, counts, from_file=True)
        except FileNotFoundError as error:
            raise ModelError("the vocabulary is missing", hint=hint, path=path) from error
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError("not a vocabulary of seqtool", hint=hint, path=path) from error


def _entries(table: Any) -> list[Entry]:
    """Return what JSON holds for a table as its entries; a TypeError if it is not that."""
    if not isinstance(table, list):
        raise TypeError("a table must be a list")
    if set(map(type, table)) <= {str}:
        return table
    rows = [tuple(entry) for entry in table if isinstance(entry, list)]
    if len(rows) < len(table) or {type(part) for row in rows for part in row} - {str, int}:
        raise TypeError("no entry of a table")
    return [*rows]


def refuse_special_words(block: bytes, *symbols: str) -> None:
    """Refuse whole lines that hold one of these symbols (`<s>` and `</s>` if none) as a word."""
    names = [symbol.encode() for symbol in symbols or (BOS, EOS)]
    data = np.frombuffer(block, np.uint8)  # far faster than the pattern: few bytes are a `>`
    before = data[np.flatnonzero(data[1:] == ord(">"))]
    if not np.isin(before, [name[-2] for name in names]).any():
        return
    wanted, blanks = b"|".join(map(re.escape, names)), BLANKS.encode()
    found = re.search(rb"(?<![^%b])(?:%b)(?![^%b])" % (blanks, wanted, blanks), block)
    if found is not None:
        raise special_word(found[0].decode(), block.count(b"\n", 0, found.start()) + 1)


def special_word(symbol: str, line: int | None = None) -> DataError:
    """Return the error that refuses a special symbol as a word, in a line of a block."""
    hint = "remove it, or choose --special-tokens unknown (or skip) of prepare and ngram train"
    what = f"the text contains the special symbol {symbol} as a word"
    return DataError(what, hint=hint, line=line)
