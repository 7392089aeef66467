"""Sentences that are to be annotated anew, beside the gold annotation of the same sentences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from seqtool.treebank.conllu import Broken, Check, Sentence, read_conllu, read_items


def read_treebank(
    files: Sequence[str], check: Check, *, skip_invalid: bool
) -> Iterator[Sentence | Broken]:
    """Return the sentences of files; broken ones too, if they are not to be refused.

    Raises:
        DataError: when iterated: a broken sentence, unless `skip_invalid`, or an unreadable file.
    """
    return read_items(files, check=check) if skip_invalid else read_conllu(files, check=check)


def read_beside_gold(
    files: Sequence[str], gold: Sequence[str], *, skip_invalid: bool
) -> tuple[Iterator[Sentence | Broken], Iterator[Sentence]]:
    """Return the sentences of files, and the gold trees of those that are whole.

    A gold tree can be taken once its sentence was; memory holds those in between. Where one of the
    two is broken, that one is among the sentences, and there is no gold tree.

    Args:
        files: what is to be parsed.
        gold: the same sentences with their trees; may be `files` themselves.
        skip_invalid: broken sentences are given, and not refused.

    Raises:
        DataError: when iterated: a broken sentence, unless `skip_invalid`, or an unreadable file.
    """
    waiting: deque[Sentence] = deque()

    def sentences() -> Iterator[Sentence | Broken]:
        if gold == files:  # which may be stdin, and cannot be read twice
            for item in read_treebank(files, "tree", skip_invalid=skip_invalid):
                if not isinstance(item, Broken):
                    waiting.append(_copy(item))
                yield item
            return
        for item, tree in zip_longest(
            read_treebank(files, "columns", skip_invalid=skip_invalid),
            read_treebank(gold, "tree", skip_invalid=skip_invalid),
        ):
            if isinstance(item, Broken) or isinstance(tree, Broken):
                yield item if isinstance(item, Broken) else tree
                continue
            if tree is not None:
                waiting.append(tree)
            if item is not None:
                yield item

    def trees() -> Iterator[Sentence]:
        while waiting:
            yield waiting.popleft()

    return sentences(), trees()


def _copy(sentence: Sentence) -> Sentence:
    """Return a sentence that keeps its tree when that of the other is written anew."""
    rows = [list(row) for row in sentence.rows]
    return Sentence(sentence.comments, rows, sentence.extras, sentence.path, sentence.line)
