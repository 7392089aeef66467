"""Files of word classes: which class each word of a vocabulary belongs to.

The file has a word and the name of its class in each line, a blank or a tab between them. A word
that it does not name is a class of its own. SRILM's files, classes-format(5), are read too:

    CLASS-00001 0.75 dog        class, p(word | class), word
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from seqtool.core.arrays import Ints
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import read_blocks
from seqtool.core.vocabulary import BLANKS, BOS, EOS
from seqtool.text.tokenizers import Tokenizer, WordTokenizer

_SHARE = re.compile(r"[01]|[01]?\.[0-9]*|[0-9.]+e-[0-9]+").fullmatch  # a probability


def read_class_numbers(path: str | Path, tokenizer: Tokenizer) -> Ints:
    """Read a file of classes.

    The classes are numbered as they come in the order of the vocabulary: that of `<unk>` is
    `UNK_ID`, and that of `</s>` is `EOS_ID`, which no other word has.

    Args:
        path: of the file; packed or not.
        tokenizer: of the text; where it lower-cases, the words of the file are lower-cased, too.

    Returns:
        int32 [V], the class of each word, 0 to C - 1; none is empty.

    Raises:
        ConfigError: the file names no word of the text, or its units are no words.
        DataError: it cannot be used; tells the line.
    """
    check_words(tokenizer)
    vocabulary = tokenizer.vocabulary
    names: dict[int, str] = {}
    num_fields = 0  # as of the first line: 2, or the 3 of SRILM
    reader = read_blocks(path)
    for block in reader:
        for number, line in enumerate(block.decode().split("\n")[:-1], start=1):
            parts = line.replace("\t", " ").strip(BLANKS).split(" ")
            fields = [part for part in parts if part]
            num_fields = num_fields or (3 if len(fields) == 3 and _SHARE(fields[1]) else 2)
            if len(fields) != num_fields or not (num_fields == 2 or _SHARE(fields[1])):
                those = "a word and its class" if num_fields == 2 else "class, probability and word"
                what = f"a line has {num_fields} fields, {those}, and this one {len(fields)}"
                raise reader.place.located(DataError(what, hint="give one word a line"), number)
            word, name = fields if num_fields == 2 else fields[::-2]
            word = word.lower() if tokenizer.lowercase else word
            if word in (EOS, BOS) or word not in vocabulary:
                continue
            if names.setdefault(vocabulary.id(word), name) != name:
                what = f"{word!r} is in class {names[vocabulary.id(word)]!r} already"
                raise reader.place.located(DataError(what, hint="give each word one class"), number)
    if not names:
        raise ConfigError(
            f"no word of the text is among those of {path}",
            hint="each line has a word, as the text has it, and its class after it",
        )
    ids: dict[tuple[str, bool], int] = {}  # names, and words that are a class of their own
    class_V = np.empty(len(vocabulary), np.int32)
    for word_id, symbol in enumerate(vocabulary.symbols):
        key = (names[word_id], True) if word_id in names else (symbol, False)
        # <unk> comes first and </s> after it, so that they get the numbers that they have to have
        class_V[word_id] = ids.setdefault(key, len(ids))
    return class_V


def check_words(tokenizer: Tokenizer) -> None:
    """Refuse a corpus of other units, which may be blanks themselves."""
    if not isinstance(tokenizer, WordTokenizer):
        raise ConfigError(
            f"classes are of words, but the corpus is of {tokenizer.unit} units",
            hint="give the text itself, or a corpus that was prepared with --unit word",
        )
