"""A syntactic language model at work: a language model, and a parser.

Each sentence is read by itself. All that is asked comes from its `tables`, filled by one network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqtool.core.arrays import Bools, Doubles, Floats, Ids, Longs
from seqtool.core.checkpoint import Header
from seqtool.core.errors import ModelError
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.model import LanguageModel
from seqtool.lm.neural.cells import State as CellState
from seqtool.lm.neural.model import load_network
from seqtool.lm.protocol import Summary, TokenScores, summarise_by_steps
from seqtool.parsing.parser.parser import ChunkParser, Ranker, ScoredTree, TreeParser
from seqtool.parsing.syntactic import tables
from seqtool.parsing.syntactic.data import encode, side_by_side, words_of
from seqtool.parsing.syntactic.network import IMPOSSIBLE, SyntacticNetwork
from seqtool.parsing.syntactic.tables import Steps
from seqtool.parsing.unknown_words import Known
from seqtool.text.tokenizers import Tokenizer
from seqtool.treebank.conllu import Broken, Item
from seqtool.treebank.derivation import Trace
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.sentence import Sentence

KIND = "syntactic-lm"
BATCH_WORDS = 512  # of sentences that the network reads together
PAIRS = 4096  # configurations whose next words are scored together


class Scored(NamedTuple):
    """The configurations of a sentence of n words."""

    sums: Steps  # all labels together; see `tables`
    best: Steps  # the best label of each arc between words
    trees: Steps  # all labels of arcs between words
    roots: Doubles  # all labels of arcs from ROOT, [n + 2]
    bonus: Doubles  # to `best`, of arcs [head, dependent]: those from ROOT have labels of their own
    labels: Longs  # the best ones: to the left, to the right, from ROOT, [3, n + 2, n + 2]


@torch.no_grad()
def score(
    network: SyntacticNetwork,
    sentences: Sequence[Longs],
    is_root_L: Bools,
    states_XH: Tensor | None = None,
) -> list[Scored]:
    """Return the configurations of sentences, which are read side by side.

    Args:
        network: in evaluation mode.
        sentences: ids of words.
        is_root_L: which labels are of arcs from ROOT alone.
        states_XH: what the network gives for them, if that is known: see `SyntacticNetwork.states`.
    """
    num, tensor = len(sentences), network.tensor
    ids_TB = side_by_side(sentences)
    if states_XH is None:
        states_XH = network.states(ids_TB)
    ends_B = np.array([1 + len(ids) for ids in sentences])
    places = np.arange(len(ids_TB) + 1)
    is_place = (places[:, None] < places) & (places <= ends_B[:, None, None])
    is_place[:, 0, 0] = True
    columns, tops, fronts = np.nonzero(is_place)
    end = ends_B[columns]
    words = ids_TB[np.minimum(fronts, end - 1), columns]  # at END none is read
    may_be = tables.possible(tops, fronts, end)
    figures, labels = np.empty((9, len(tops))), np.empty((3, len(tops)), np.int64)
    not_of = [tensor(is_root_L), tensor(is_root_L), tensor(~is_root_L & is_root_L.any())]
    for begin in range(0, len(tops), PAIRS):
        part = slice(begin, begin + PAIRS)
        rows_2N = tensor(np.stack([tops[part], fronts[part]]) * num + columns[part])
        words_N = network.word_log_probs(states_XH, rows_2N, tensor(words[part]))
        steps_NS = network.step_log_probs(states_XH, rows_2N, tensor(may_be[part]))
        figures[:3, part] = doubles(network.sums(steps_NS)).T
        figures[0, part] += doubles(words_N)
        _, left_NL, right_NL = network.sides(steps_NS)
        for side, scores_NL in enumerate((left_NL, right_NL, right_NL)):
            allowed_NL = scores_NL.masked_fill(not_of[side], 0.4 * IMPOSSIBLE)
            highest_N, labels_N = allowed_NL.max(1)
            figures[6 + side, part] = doubles(torch.logsumexp(allowed_NL, 1))
            figures[3 + side, part], labels[side, part] = doubles(highest_N), labels_N.cpu()
    figures[figures < 0.5 * IMPOSSIBLE] = -np.inf
    scored = []
    for column, size in enumerate((ends_B + 1).tolist()):
        own = slice(*np.searchsorted(columns, [column, column + 1]))
        table = np.full((9, size, size), -np.inf)
        table[:, tops[own], fronts[own]] = figures[:, own]
        of_labels = np.zeros((3, size, size), np.int64)
        of_labels[:, tops[own], fronts[own]] = labels[:, own]
        bonus = np.zeros((size, size))
        bonus[0, 1:-1] = table[5, 1:-1, -1] - table[4, 1:-1, -1]  # popped at END
        sums, best, trees = (Steps(table[0], *table[side : side + 2]) for side in (1, 3, 6))
        scored.append(Scored(sums, best, trees, table[8, :, -1], bonus, of_labels))
    return scored


def doubles(values: Tensor) -> Doubles:
    """Return numbers in float64, on the CPU."""
    numbers: Doubles = values.cpu().double().numpy()
    return numbers


class Hypothesis(NamedTuple):
    """A sentence that is read up to word k, the front."""

    cells: list[CellState]  # of the network, one stream
    states: Tensor  # h_0 to h_k, (k + 1, H)
    steps: Steps  # up to front k, [k + 1, k + 1]; a shift there has no word yet
    prefixes: Doubles  # nats of the first words, from none to k, [k + 1]
    shares: Doubles  # nats of the tops with which the next word is read, [k]; ROOT at the beginning


class Hypotheses(list[Hypothesis]):
    """State of the protocol: sentences that are read side by side."""

    def __getitem__(self, rows: Any) -> Any:
        """Return the hypotheses `rows`, an array."""
        return Hypotheses(list.__getitem__(self, row) for row in np.asarray(rows).tolist())


class SyntacticModel(LanguageModel, TreeParser):
    """A trained network with its tokenizer and the labels of its arcs.

    What it is asked as a parser needs no tags, and `beam` changes nothing: the search is exact.
    """

    kind = KIND  # type: ignore[misc]  # of the class, as a parser has it
    has_beam = False
    longest = None  # words of the longest sentence that gets its best tree

    def __init__(
        self, network: SyntacticNetwork, tokenizer: Tokenizer, labels: Sequence[str]
    ) -> None:
        self.network, self.tokenizer, self.labels = network.eval(), tokenizer, tuple(labels)
        is_root = [label.partition(LIFTED)[0].partition(":")[0] == "root" for label in labels]
        self._is_root = np.array(is_root)
        self.calibrations = {}

    @property
    def known(self) -> Known:
        """What it knows of words."""
        words = frozenset(self.tokenizer.vocabulary.symbols)
        return Known(words, words if self.tokenizer.lowercase else (), {}, None)

    @property
    def carries_state(self) -> bool:
        """Return False: each sentence is read by itself."""
        return False

    def score_all(self, sentences: Sequence[Longs]) -> Iterator[Scored]:
        """Give the configurations of sentences, in order."""
        ends = np.cumsum([1 + len(ids) for ids in sentences])
        cuts = np.flatnonzero(np.diff(ends // BATCH_WORDS)) + 1
        for places in np.split(np.arange(len(sentences)), cuts) if len(sentences) else ():
            yield from score(self.network, [sentences[place] for place in places], self._is_root)

    def score_ids(
        self, blocks: Iterable[Ids], *, reset_state: bool = False, summary: Summary | None = None
    ) -> Iterator[TokenScores]:
        """Yield the log-probabilities (nats) of each block."""
        if summary is not None:
            yield from summarise_by_steps(self, blocks, summary, reset_state=True)
            return
        for block in blocks:
            ends = np.flatnonzero(block == EOS_ID) + 1
            sentences = [each[:-1].astype(np.int64) for each in np.split(block, ends)[:-1]]
            log_probs = [
                np.diff(tables.prefixes(scored.sums), prepend=0.0)
                for scored in self.score_all(sentences)
            ]
            yield TokenScores(np.concatenate([np.zeros(0), *log_probs]))

    def start(self, num: int) -> Hypotheses:
        """Return `num` hypotheses at the beginning of a sentence."""
        steps = Steps(np.zeros((1, 1)), *np.full((2, 1, 1), -np.inf))
        state_1H, cells = self._read(self.network.lm.initial_state(1), EOS_ID)
        return Hypotheses([Hypothesis(cells, state_1H, steps, np.zeros(1), np.zeros(1))] * num)

    @torch.inference_mode()
    def _read(self, cells: Sequence[CellState], token: int) -> tuple[Tensor, list[CellState]]:
        states_11H, after = self.network.lm(self.network.tensor(np.array([[token]])), cells)
        return states_11H[0], after

    def advance(self, state: Hypotheses, tokens: Ids) -> Hypotheses:
        """Read one token per hypothesis; `EOS_ID` begins the next sentence."""
        return Hypotheses(
            self.start(1).pop() if token == EOS_ID else self._advance(one, token)
            for one, token in zip(list(state), tokens.tolist(), strict=True)
        )

    def _rows(self, one: Hypothesis) -> Tensor:
        """Return the tops, and the front of each, with which the next word is read, (2, N)."""
        tops = np.arange(len(one.shares))
        return self.network.tensor(np.stack([tops, np.full_like(tops, len(one.states) - 1)]))

    @torch.inference_mode()
    def _advance(self, before: Hypothesis, token: int) -> Hypothesis:
        """Read a word."""
        network, rows_2N = self.network, self._rows(before)
        token_N = torch.full_like(rows_2N[0], token)
        words_N = doubles(network.word_log_probs(before.states, rows_2N, token_N))
        steps = Steps(*(np.pad(each, (0, 1), constant_values=-np.inf) for each in before.steps))
        steps.shift[: len(words_N), -2] += words_N
        read = np.logaddexp.reduce(before.shares + words_N)
        sums = np.append(before.prefixes, before.prefixes[-1] + read)
        state_1H, cells = self._read(before.cells, token)
        states = torch.cat([before.states, state_1H])
        # the next front
        tops = np.arange(len(states) - 1)
        fronts = np.full_like(tops, len(tops))
        rows_2N = network.tensor(np.stack([tops, fronts]))
        may_be_N3 = network.tensor(tables.possible(tops, fronts, fronts + 1))
        figures_N3 = doubles(network.sums(network.step_log_probs(states, rows_2N, may_be_N3)))
        for table, figures_N in zip(steps, figures_N3.T, strict=True):
            table[:-1, -1] = figures_N
        shares_N = sums[1:] + tables.inside(steps)[:-1, -1] + steps.shift[:-1, -1] - sums[-1]
        return Hypothesis(cells, states, steps, sums, shares_N)

    @torch.inference_mode()
    def next_log_probs(self, state: Hypotheses) -> Doubles:
        """Return natural-log probabilities of the next token, (num, V)."""
        rows = []
        for one in list(state):
            vectors_NH = self.network.word_vectors(one.states, self._rows(one))
            log_probs_NV = doubles(self.network.lm.softmax.log_probs(vectors_NH))
            rows.append(np.logaddexp.reduce(log_probs_NV + one.shares[:, None]))
        return np.stack(rows)

    def scored(self, sentences: Sequence[Sentence]) -> Iterator[Scored]:
        """Give the configurations of the sentences of a treebank, in order."""
        return self.score_all([encode(self.tokenizer, words_of(each)) for each in sentences])

    def tree_of(self, scored: Scored) -> tuple[list[int], list[str]]:
        """Return the tree of the best derivation, lifted arcs put back."""
        _, heads, fronts = tables.best_tree(scored.best, scored.bonus)
        return self._named(scored, heads, fronts)

    def _named(self, scored: Scored, heads: Longs, fronts: Longs) -> tuple[list[int], list[str]]:
        """Return a tree with its labels, lifted arcs put back."""
        words = np.arange(1, len(heads) + 1)
        sides = np.where(heads == 0, 2, heads < words)
        numbers = scored.labels[sides, words, fronts]
        return deprojectivise(heads.tolist(), [self.labels[number] for number in numbers])

    def _chunk_parser(self, beam: int, allow_missing: bool, scores: bool) -> ChunkParser:
        def parse(chunk: Sequence[Item]) -> None:
            sentences = [item for item in chunk if isinstance(item, Sentence)]
            for sentence, scored in zip(sentences, self.scored(sentences), strict=True):
                _, heads, fronts = tables.best_tree(scored.best, scored.bonus)
                sentence.set_tree(*self._named(scored, heads, fronts))
                if scores:
                    _, _, arcs = tables.expected(scored.trees, one_root=True, roots=scored.roots)
                    likely = arcs[heads, np.arange(1, len(heads) + 1)]
                    sentence.set_scores(np.minimum(likely, 1.0).tolist())

        return parse

    def _ranker(self, num: int, beam: int, allow_missing: bool) -> Ranker:
        def rank(sentences: Sequence[Sentence]) -> Iterator[list[ScoredTree]]:
            for scored in self.scored(sentences):
                trees: dict[str, ScoredTree] = {}  # some are alike once lifted arcs are put back
                for nats, heads, fronts in tables.best_trees(scored.best, scored.bonus):
                    tree = ScoredTree(*self._named(scored, heads, fronts), nats)
                    trees.setdefault(repr(tree[:2]), tree)
                    if len(trees) == num:
                        break
                yield [*trees.values()]

        return rank

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Refuse: the best tree is found by a table, not step by step."""
        raise ModelError("this model builds no trees step by step", hint="see analyse stack")

    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give the marginals of the heads of each sentence, [n, 1 + n]."""
        for scored in self.scored(sentences):
            _, _, arcs = tables.expected(scored.trees, one_root=True, roots=scored.roots)
            yield arcs[:-1, 1:-1].T.astype(np.float32)


def load_model(directory: Path, header: Header, *, device: str = "cpu") -> SyntacticModel:
    """Open a syntactic language model, on the CPU; errors as of `load_network`."""
    labels = header.statistics.get("labels")
    if not isinstance(labels, list) or not labels:
        raise ModelError("the header names no labels", hint="train it again", path=directory)

    def make(config: Any, num_symbols: int) -> SyntacticNetwork:
        return SyntacticNetwork(config, num_symbols, len(labels))

    return SyntacticModel(*load_network(directory, header, make), [str(label) for label in labels])
