"""A stretch of text that models are looked at with: whole sentences, as tokens and as ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Ids
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import is_corpus, read_blocks
from seqtool.core.units import LN_2
from seqtool.core.vocabulary import EOS, EOS_ID, UNK, UNK_ID
from seqtool.lm.evaluation import read_ids
from seqtool.lm.protocol import LanguageModel
from seqtool.treebank.sentence import NUM_COLUMNS, UPOS, Sentence

_BLOCK = 1 << 14  # bytes that are read at once, as a passage is short
SENTENCE_END = "the end of a sentence"


@dataclass(frozen=True)
class Passage:
    """Whole sentences of a text, `</s>` after each.

    Attributes:
        tokens: [N], as written.
        ids: [N], of one model.
    """

    tokens: list[str]
    ids: Ids

    def sentences(self) -> Iterator[slice]:
        """Give the place of each sentence, its `</s>` included."""
        begin = 0
        for end in (np.flatnonzero(self.ids == EOS_ID) + 1).tolist():
            yield slice(begin, end)
            begin = end


def read_passage(
    model: LanguageModel, text: str | Path, *, split: str = "valid", num_tokens: int = 20_000
) -> Passage:
    """Return the first sentences of a text as a model reads them, at least one.

    Args:
        model: whose tokenizer reads it.
        text: a file or directory of text, or a prepared corpus of the model's vocabulary.
        split: of a prepared corpus.
        num_tokens: at most so many, but for the one sentence that is always read.

    Raises:
        DataError: a text that cannot be used, or a corpus of another vocabulary.
    """
    tokenizer = model.tokenizer
    if is_corpus(text):
        ids = read_ids(model, text, split=split, num_tokens=num_tokens)
        ends = np.flatnonzero(ids == EOS_ID)
        if not len(ends):
            raise DataError(
                f"the first sentence has more than {num_tokens:,} tokens",
                hint="read more of them",
                path=text,
            )
        ids = ids[: ends[-1] + 1]
        return Passage(tokenizer.vocabulary.decode(ids), ids)
    tokens: list[str] = []
    parts: list[Ids] = []
    for ids, block in tokenizer.encode_blocks(read_blocks([text], block_size=_BLOCK)):
        parts.append(ids)
        for line in block.decode().split("\n")[:-1]:
            tokens += [*tokenizer.tokens(line), EOS]
        if len(tokens) >= num_tokens:
            break
    ids = np.concatenate(parts)
    ends = np.flatnonzero(ids == EOS_ID) + 1
    num = int(max(ends[0], ends[ends <= num_tokens].max(initial=0)))
    return Passage(tokens[:num], ids[:num])


def read_sentence(model: LanguageModel, sentence: str) -> Passage:
    """Return one sentence as a model reads it, `</s>` after it.

    Raises:
        DataError: it holds what the tokenizer refuses.
    """
    tokenizer = model.tokenizer
    tokens, ids = tokenizer.tokens(sentence), tokenizer.encode(sentence)
    return Passage([*tokens, EOS], np.concatenate((ids, np.array([EOS_ID], np.int32))))


def surprisals(model: LanguageModel, passage: Passage) -> npt.NDArray[np.float64]:
    """Return the surprisal of every token in bits, [N]; the text before it is carried on."""
    (scores,) = model.score_ids([passage.ids])
    bits: npt.NDArray[np.float64] = 0.0 - scores.log_probs / LN_2
    return bits


def check_models(
    models: Sequence[tuple[str, Any]], text: str | Path | None, sentences: Sequence[str]
) -> None:
    """Refuse an analysis of models that score no text, or of no text.

    Raises:
        ConfigError: there is such a model, or none at all, or neither a text nor a sentence.
    """
    if not models:
        raise ConfigError("no model is given", hint="name one with -m")
    for name, model in models:
        if not hasattr(model, "next_log_probs"):
            raise ConfigError(f"{name} is no language model", hint="leave it out")
    if text is None and not sentences:
        raise ConfigError("there is no text and no sentence", hint="give one of them")


def unknown_remarks(passages: Mapping[str, Passage]) -> list[str]:
    """Return a line that says which models know fewer words; none where all know as many."""
    unknown = {name: int((passage.ids == UNK_ID).sum()) for name, passage in passages.items()}
    if len(set(unknown.values())) < 2:
        return []
    counts = ", ".join(f"{num:,} by {name}" for name, num in unknown.items())
    return [
        f"Tokens not known: {counts}. Such a token has the surprisal of {UNK}, so a model that "
        "knows fewer words has the easier task."
    ]


def word_classes(tagger: Any, passage: Passage) -> list[str]:
    """Return the universal tag of every word, as a tagger gives it; `</s>` has its own class."""
    sentences = []
    for place in passage.sentences():
        words = passage.tokens[place][:-1]
        rows = [[str(i), word, *["_"] * (NUM_COLUMNS - 2)] for i, word in enumerate(words, start=1)]
        sentences.append(Sentence([], rows, []))
    tagged = iter(list(tagger.tag_stream(one for one in sentences if len(one))))
    classes: list[str] = []
    for sentence in sentences:
        classes += [*(next(tagged).column(UPOS) if len(sentence) else ()), SENTENCE_END]
    return classes
