"""What a syntactic language model learns from: words as ids, and the steps that build their trees.

Blanks inside a form are no-break spaces. Trees that are not projective are lifted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Ids, Longs
from seqtool.core.errors import DataError
from seqtool.core.reading import is_treebank, read_blocks
from seqtool.core.vocabulary import EOS_ID, UNK_ID, Vocabulary
from seqtool.lm.neural.config import NeuralLMConfig
from seqtool.parsing.data import in_parts
from seqtool.text.tokenizers import Tokenizer, WordTokenizer
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.projectivity import projectivise
from seqtool.treebank.sentence import DEPREL, FORM, Sentence

LONGEST_RAW = 80  # words of a sentence without a tree: all trees take the cube of it


class Derived(NamedTuple):
    """A sentence with the steps that build its tree.

    Of each step there are top, front, its number, and the id that is read, [2n + 1, 4]. The number
    0 is a shift, then come arcs to the left by their labels, then arcs to the right; it is -1 where
    nothing is chosen. Where nothing is read, the id is -1.
    """

    ids: Longs
    steps: Longs


class SyntacticData(NamedTuple):
    """What is learnt from."""

    tokenizer: WordTokenizer
    labels: tuple[str, ...]  # of arcs, also of lifted ones, the most frequent first
    train: list[Derived]
    dev: list[Sentence]
    raw: list[Longs]  # sentences without trees
    summary: dict[str, Any]  # numbers that tell these data from others


def words_of(sentence: Sentence) -> list[str]:
    """Return the forms of a sentence as words: a blank inside would make two of one."""
    return [form.replace(" ", "\u00a0") for form in sentence.column(FORM)]


def encode(tokenizer: Tokenizer, words: Sequence[str]) -> Longs:
    """Return the ids of words; one that looks like a special symbol is unknown."""
    known = tokenizer.vocabulary
    if tokenizer.lowercase:
        words = [word.lower() for word in words]
    ids = [known.id(word) for word in words]
    return np.array([UNK_ID if number == EOS_ID else number for number in ids], np.int64)


def derive(ids: Longs, heads: Sequence[int], labels: Sequence[int], num_labels: int) -> Derived:
    """Return a sentence with the steps that build a projective tree, words popped early."""
    read, last = [*ids.tolist(), EOS_ID], dict(zip(heads, range(1, len(heads) + 1), strict=True))
    steps, stack, front = [(0, 0, -1, read[0])], [0], 1
    while front <= len(heads) or len(stack) > 1:
        top = stack[-1]
        head = heads[top - 1] if top else -1
        # a head before it waits for the last child
        if head == front or (top and head < top and last.get(top, 0) < front):
            number = 1 + labels[top - 1] + (head < top) * num_labels
            steps.append((top, front, number, -1))
            stack.pop()
        else:
            steps.append((top, front, 0 if top else -1, read[front]))
            stack.append(front)
            front += 1
    return Derived(ids, np.array(steps, np.int64))


def syntactic_data(
    train: Iterable[Sentence],
    dev: Iterable[Sentence] | None,
    config: NeuralLMConfig,
    unlabelled: Sequence[str] = (),
) -> SyntacticData:
    """Read the parts of a treebank; without `dev`, every tenth sentence is held out.

    Words of files that are `unlabelled`, plain text or CoNLL-U, are those of the treebank, or
    unknown.

    Raises:
        DataError: there is no sentence.
    """
    parts: dict[bool, list[Sentence]] = {False: [], True: []}
    for sentence, is_dev in in_parts(train, dev):
        parts[is_dev].append(sentence)
    trees, valid = parts[False], parts[True] or parts[False]
    if not trees:
        raise DataError("there is no sentence to learn from", hint="give a larger treebank")
    lower = config.data.lowercase
    words = [words_of(sentence) for sentence in trees]
    counts = Counter(word.lower() if lower else word for each in words for word in each)
    vocabulary = Vocabulary.from_counts(
        counts,
        max_size=config.data.vocab_size,
        min_count=config.data.min_count,
        num_sentences=len(trees),
    )
    tokenizer = WordTokenizer(vocabulary, lowercase=lower, special_tokens="unknown")
    own = [(sentence.heads(), sentence.column(DEPREL)) for sentence in trees]
    lifted = [projectivise(*tree) for tree in own]
    names = Counter(label for _, labels in lifted for label in labels)
    numbers = {label: number for number, (label, _) in enumerate(names.most_common())}
    derived = [
        derive(encode(tokenizer, each), heads, [numbers[name] for name in labels], len(numbers))
        for each, (heads, labels) in zip(words, lifted, strict=True)
    ]
    summary = {
        "sentences": len(derived),
        "words": sum(len(each.ids) for each in derived),
        "dev_sentences": len(valid),
        "dev_words": sum(map(len, valid)),
        "dev_held_out": dev is None,
        "non_projective_sentences": sum(
            heads != list(before) for (heads, _), (before, _) in zip(lifted, own, strict=True)
        ),
        "labels": len(numbers),
        "vocabulary_size": len(vocabulary),
        "sum": hashlib.sha256(repr((words, own)).encode()).hexdigest()[:12],
    }
    raw = list(_raw_sentences(unlabelled, tokenizer))
    if raw:
        summary |= {"raw_sentences": len(raw), "raw_words": sum(map(len, raw))}
    return SyntacticData(tokenizer, tuple(numbers), derived, valid, raw, summary)


def _raw_sentences(files: Sequence[str], tokenizer: WordTokenizer) -> Iterator[Longs]:
    """Give the sentences of texts, a line each, or of CoNLL-U."""
    treebanks = [file for file in files if is_treebank(file)]
    for sentence in read_conllu(treebanks, check="columns") if treebanks else ():
        if len(sentence) <= LONGEST_RAW:
            yield encode(tokenizer, words_of(sentence))
    texts = [file for file in files if file not in treebanks]
    for ids, _ in tokenizer.encode_blocks(read_blocks(texts)) if texts else ():
        for line in np.split(ids.astype(np.int64), np.flatnonzero(ids == EOS_ID) + 1)[:-1]:
            if 1 < len(line) <= LONGEST_RAW:
                yield line[:-1]


def side_by_side(sentences: Sequence[Ids | Longs]) -> Longs:
    """Return sentences as columns, `</s>` once after the longest, more after others, [T, B]."""
    ids_TB = np.full((1 + max(map(len, sentences)), len(sentences)), EOS_ID, np.int64)
    for column, ids in enumerate(sentences):
        ids_TB[: len(ids), column] = ids
    return ids_TB
