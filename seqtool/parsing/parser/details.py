"""What a parser tells beyond one tree for each sentence: the best ones, and how one was built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from seqtool.parsing.encoding.features import TokenArrays, Types
from seqtool.parsing.model import AT_WORK
from seqtool.parsing.parser.columns import ColumnCheck, refuse_lacking
from seqtool.treebank.conllu import Broken, Item, no_item, refuse_no_sentence, sentences_of
from seqtool.treebank.derivation import Derivation, Trace
from seqtool.treebank.layouts import begins_text
from seqtool.treebank.misc import RANK, SCORE, is_of_tree
from seqtool.treebank.projectivity import deprojectivise
from seqtool.treebank.sentence import Sentence

CHUNK_WORDS = 1 << 10  # encoded together; of each, much is kept until it is given


class ScoredTree(NamedTuple):
    """One of the best trees of a sentence of n words, lifted arcs put back.

    Attributes:
        heads: n numbers; 0 is ROOT.
        deprels: n labels.
        score: see `decoder.RankedTree`.
    """

    heads: list[int]
    deprels: list[str]
    score: float


def chunks(items: Iterable[Item]) -> Iterator[tuple[list[Sentence | Broken], bool]]:
    """Give items, batches as their sentences, in chunks, and whether a chunk is the only one.

    Raises:
        TypeError: when iterated: an item is something else.
    """
    chunk: list[Sentence | Broken] = []
    is_first, num_words, num_broken = True, 0, 0
    for item in sentences_of(items):
        if not isinstance(item, Sentence | Broken):
            raise no_item(item)
        if num_words >= CHUNK_WORDS or num_broken >= CHUNK_WORDS:
            yield chunk, False
            chunk, is_first, num_words, num_broken = [], False, 0, 0
        chunk.append(item)
        if isinstance(item, Sentence):
            num_words += len(item)
        else:
            num_broken += item.num_lines
    yield chunk, is_first


Answer = TypeVar("Answer")


class DetailedParser(ABC):
    """A parser that can be asked for more than one tree of each sentence.

    Attributes:
        types: of words, those met so far.
    """

    types: Types

    @abstractmethod
    def encode(self, sentences: Iterable[Sentence]) -> TokenArrays:
        """Return sentences as token arrays."""

    @abstractmethod
    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[ScoredTree]]:
        """Give the `num` best trees of each encoded sentence, the best first."""

    @abstractmethod
    def derivations(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Derivation]:
        """Give how the tree of each encoded sentence is built; see `Decoder.derivations`."""

    def nbest(
        self, items: Iterable[Item], num: int, *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[list[Sentence] | Broken]:
        """Give the best trees of each sentence, the best first; broken ones as they are.

        Each tree is a copy of the sentence with comments that tell its place and its score, a
        natural log-probability where the parser has probabilities (see `with_trees`):

            # parse_rank = 2
            # parse_score = -1.2345

        The trees of a sentence differ, and there may be fewer than asked for.

        Args:
            items: as of `parse_stream`.
            num: of trees.
            beam: hypotheses per sentence; no fewer than `num` are followed.
            allow_missing: parse also sentences without columns that the parser reads.

        Raises:
            DataError: when iterated: there are such sentences, and they are not allowed.
            TypeError: when iterated: an item is something else.
        """
        ask = partial(self.ranked, num=num, beam=beam)
        for chunk, ranked in self._asked_of(items, ask, allow_missing=allow_missing):
            for item in chunk:
                yield item if isinstance(item, Broken) else with_trees(item, next(ranked))

    def trace(self, sentence: Sentence, *, beam: int = 1, allow_missing: bool = False) -> Trace:
        """Return how the tree of a sentence, which is not changed, is built.

        Args:
            sentence: with the columns that the parser reads.
            beam: hypotheses.
            allow_missing: parse it also without them.

        Raises:
            DataError: it lacks columns.
            ModelError: the parser builds no trees step by step.
        """
        (trace,) = self.traces(
            [refuse_no_sentence(sentence).copy()], beam=beam, allow_missing=allow_missing
        )
        assert isinstance(trace, Trace)
        return trace

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Give each sentence with its new tree, and how that is built; broken ones as they are.

        Arguments and errors are those of `parse_stream`.

        Raises:
            ModelError: when iterated: the parser builds no trees step by step.
        """
        ask = partial(self.derivations, beam=beam)
        for chunk, derivations in self._asked_of(items, ask, allow_missing=allow_missing):
            for item in chunk:
                if isinstance(item, Broken):
                    yield item
                    continue
                derivation = next(derivations)
                heads = [arc.head for arc in derivation.arcs]
                item.set_tree(*deprojectivise(heads, [arc.label for arc in derivation.arcs]))
                yield Trace(item, derivation)

    def _asked_of(
        self,
        items: Iterable[Item],
        ask: Callable[[TokenArrays], Iterator[Answer]],
        *,
        allow_missing: bool,
    ) -> Iterator[tuple[list[Sentence | Broken], Iterator[Answer]]]:
        """Give items in chunks, and the answers about the sentences of each.

        Raises:
            DataError: when iterated: a sentence lacks columns, and that is not allowed.
            TypeError: when iterated: an item is something else.
        """
        check = None if allow_missing else ColumnCheck(self.types)
        for chunk, is_all in chunks(items):
            with AT_WORK:  # until the answers hold on to the numbers of types
                answers = ask(self._checked(chunk, check, is_all=is_all))
            yield chunk, answers

    def _checked(
        self, chunk: Sequence[Sentence | Broken], check: ColumnCheck | None, *, is_all: bool
    ) -> TokenArrays:
        sentences = [item for item in chunk if isinstance(item, Sentence)]
        arrays = self.encode(sentences)
        if check is not None:
            refuse_lacking(sentences, arrays, check, is_all=is_all)
        return arrays


def with_trees(sentence: Sentence, trees: Sequence[ScoredTree]) -> list[Sentence]:
    """Return a copy of a sentence for each of its trees, with comments that tell them apart."""
    others = [line for line in sentence.comments if not is_of_tree(line)]
    copies = []
    for rank, tree in enumerate(trees, start=1):
        if rank > 1:  # what begins with the sentence begins once
            others = [line for line in others if not begins_text(line)]
        copy = sentence.copy()
        copy.set_tree(tree.heads, tree.deprels)
        copy.comments = [*others, f"# {RANK} = {rank}", f"# {SCORE} = {tree.score:.4f}"]
        copies.append(copy)
    return copies
