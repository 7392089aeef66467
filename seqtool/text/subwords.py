"""Subwords: SentencePiece BPE and unigram, set up so that nothing of the text is lost.

Identity normalisation, no dummy prefix, all spaces kept: `decode(encode(line)) == line` for every
line whose characters are covered. Since U+2581 is SentencePiece's own sign for a space, one that
the text has stands as U+FDD0 in pieces: Unicode keeps that for use within programs. Where a text
has U+FDD0 itself, it is read as U+FFFD. All of them have three bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import sentencepiece

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, ModelError
from seqtool.core.storage import read_file
from seqtool.core.vocabulary import EOS, EOS_ID, NUM_SPECIALS, UNK, UNK_ID, Vocabulary
from seqtool.text.tokenizers import REPLACEMENT, StreamDecoder, Tokenizer

MODEL_FILE = "tokenizer.model"
DEFAULT_SIZE = 8000
SAMPLE_CHARACTERS = 1000  # of one training sentence; longer lines are cut
_SEGMENT_CHARACTERS = 10_000  # encoded at a time: SentencePiece needs 100 bytes per character
_END = np.array([EOS_ID], np.int32)
_SPACE_SIGN = "\N{LOWER ONE EIGHTH BLOCK}"
_WRITTEN_SIGN = "\ufdd0"  # what stands for one that a text has
# what SentencePiece's trainer keeps for itself: text with it would not be learnt from at all, or
# would become a piece that looks like a special symbol; lines are cut there
_RESERVED = re.compile(r"(?<=<)(?=unk>|/?s>|0x[0-9A-F]{2}>)|[\0\N{LOWER FIVE EIGHTHS BLOCK}]")
_TOO_LARGE = re.compile(r"value <= (\d+)")
_TOO_SMALL = re.compile(r"smaller than required_chars. \d+ vs (\d+)")


class SubwordTokenizer(Tokenizer):
    """A serialised SentencePiece model, of BPE or unigram pieces."""

    def __init__(self, model: bytes, *, unit: str, lowercase: bool = False) -> None:
        self.unit = unit
        self.lowercase = lowercase
        self._model = model
        self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def load(cls, directory: Path, description: Mapping[str, Any]) -> Self:
        """Read what `save` wrote; a ModelError if it is missing or damaged."""
        path, hint = directory / MODEL_FILE, "prepare or train it again"
        lowercase = bool(description.get("lowercase", False))
        try:
            model = read_file(path)
            tokenizer = cls(model, unit=description["unit"], lowercase=lowercase)
            specials = tokenizer.vocabulary.symbols[:NUM_SPECIALS]
            tokenizer._texts  # noqa: B018 - is there a byte for each piece that stands for one?
        except FileNotFoundError as error:
            raise ModelError("the tokenizer is missing", hint=hint, path=path) from error
        except (RuntimeError, IndexError, ValueError, OSError, ConfigError) as error:
            raise ModelError("not a SentencePiece model", hint=hint, path=path) from error
        if specials != [UNK, EOS] or tokenizer._pieces.bos_id() >= 0:
            what = "not a SentencePiece model made by seqtool"
            raise ModelError(what, hint="prepare the text again", path=path)
        return tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override] # made when asked for
        """The pieces, a space shown as U+2581."""
        return Vocabulary(self._pieces.IdToPiece(list(range(len(self._pieces)))))

    def encode(self, line: str) -> Ids:
        """Return the ids of the pieces of one line."""
        segments = segments_of(self._case(line), _SEGMENT_CHARACTERS)
        return _flat(self._pieces.EncodeAsIds(segment) for segment in segments)

    def tokens(self, line: str) -> list[str]:
        """Return the pieces of one line as written, a space shown as U+2581."""
        segments = segments_of(self._case(line), _SEGMENT_CHARACTERS)
        return list(chain.from_iterable(map(self._pieces.EncodeAsPieces, segments)))

    def encode_block(self, block: bytes) -> Ids:
        """Return the ids of whole lines, `EOS_ID` after each."""
        lines = self._case(block.decode()).split("\n")
        lines.pop()
        if max(map(len, lines), default=0) <= _SEGMENT_CHARACTERS:
            return _flat(self._pieces.Encode(lines, out_type=int, add_eos=True, num_threads=1))
        return np.concatenate([ids for line in lines for ids in (self.encode(line), _END)])

    def _plain(self, token: str) -> str:
        return token.replace(_SPACE_SIGN, " ")

    def _case(self, text: str) -> str:
        return _with_signs(super()._case(text))

    def decoder(self) -> StreamDecoder:
        """Return a decoder; what is unknown is shown as U+FFFD."""
        return _Decoder(*self._texts)

    @cached_property
    def _texts(self) -> tuple[list[str], dict[int, int]]:
        pieces = self.vocabulary.symbols
        texts = [piece.replace(_SPACE_SIGN, " ") for piece in pieces]
        texts[UNK_ID] = REPLACEMENT
        byte_ids = np.flatnonzero(self._pieces.IsByte(list(range(len(pieces))))).tolist()
        return texts, {token: int(pieces[token][3:5], 16) for token in byte_ids}

    def save(self, directory: str | Path) -> list[str]:
        """Write `tokenizer.model`."""
        (Path(directory) / MODEL_FILE).write_bytes(self._model)
        return [MODEL_FILE]


class _Decoder(StreamDecoder):
    """Gives U+2581 where a text had it."""

    def push(self, token: int) -> str:
        return super().push(token).replace(_WRITTEN_SIGN, _SPACE_SIGN)


def _with_signs(text: str) -> str:
    """Return a text as SentencePiece may see it, without its own sign for a space."""
    return text.replace(_WRITTEN_SIGN, REPLACEMENT).replace(_SPACE_SIGN, _WRITTEN_SIGN)


def _flat(parts: Iterable[Iterable[int]]) -> Ids:
    return np.fromiter(chain.from_iterable(parts), np.int32)


def segments_of(line: str, size: int) -> Iterator[str]:
    """Cut a line into segments of at most `size` characters, before a space where there is one.

    No piece holds a space but as its first character, so that such a cut changes no piece.
    """
    start = 0
    while len(line) - start > size:
        cut = line.rfind(" ", start + 1, start + size)
        cut = cut if cut > 0 else start + size
        yield line[start:cut]
        start = cut
    yield line[start:]


class LineSample:
    """A uniform sample of lines from a stream of unknown length, however cut (algorithm R)."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.lines: list[str] = []
        self.num_seen = 0
        self._size = size
        self._rng = rng

    def add(self, text: str) -> None:
        """Draw from whole lines; empty ones are left out, long ones cut."""
        whole = filter(None, text.split("\n"))
        lines = [part for line in whole for part in segments_of(line, SAMPLE_CHARACTERS)]
        free = self._size - len(self.lines)
        self.lines += lines[:free]
        rest = lines[free:]
        num_before = self.num_seen + len(lines) - len(rest)
        self.num_seen += len(lines)
        places = self._rng.random(len(rest)) * (np.arange(len(rest)) + num_before + 1)
        for i in np.flatnonzero(places < self._size).tolist():
            self.lines[int(places[i])] = rest[i]


def train_subwords(
    lines: Sequence[str],
    *,
    unit: Literal["bpe", "unigram"],
    vocab_size: int | None,
    lowercase: bool = False,
    character_coverage: float = 1.0,
    byte_fallback: bool = False,
) -> SubwordTokenizer:
    """Train a SentencePiece model on sentences, lower-cased already where `lowercase`.

    A vocabulary size of None stands for `DEFAULT_SIZE`, or as many symbols as the text supports,
    specials included; one that it does not support is refused, with a hint of one it does. The
    coverage is the share of characters to have as symbols: others are unknown, or with
    `byte_fallback` spelt by their bytes.
    """

    def train(size: int) -> bytes:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(
                part for line in lines for part in _RESERVED.split(_with_signs(line)) if part
            ),
            model_writer=model,
            model_type=unit,
            vocab_size=size,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            unk_id=UNK_ID,
            eos_id=EOS_ID,
            bos_id=-1,
            pad_id=-1,
            unk_piece=UNK,
            eos_piece=EOS,
            max_sentence_length=8 * SAMPLE_CHARACTERS,
            num_threads=1,
            minloglevel=2,
        )
        return model.getvalue()

    size = vocab_size or DEFAULT_SIZE
    try:
        model = train(size)
    except RuntimeError as error:
        largest = _TOO_LARGE.search(str(error))
        if largest is None or vocab_size is not None:
            raise _size_error(str(error), size) from error
        model = train(int(largest[1]))
    return SubwordTokenizer(model, unit=unit, lowercase=lowercase)


def _size_error(message: str, size: int) -> ConfigError:
    if found := _TOO_LARGE.search(message):
        problem, bound = f"this text supports at most {found[1]} pieces", "less, or more text"
    elif found := _TOO_SMALL.search(message):
        problem = f"the characters of this text alone need {found[1]}"
        bound = "more, or a lower --character-coverage"
    else:
        what = f"SentencePiece cannot learn pieces from this text: {message}"
        return ConfigError(what, hint="give more text or another --vocab-size")
    hint = f"give --vocab-size {found[1]} or {bound}"
    return ConfigError(f"vocab-size is {size}, but {problem}", hint=hint)
