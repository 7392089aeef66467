"""N-best lists of recognisers and translators, rescored by a language model.

    utt-1 words ...                           Kaldi: the hypothesis N of UTT is UTT-N
    id ||| words ||| features ||| score       Moses: features as LM0= -3.2 TM0= -1 -2, or numbers
    id<TAB>text<TAB>score ...                 TSV with a header; columns of numbers are scores

The hypotheses of an utterance stand together. The best one has the highest sum of weighted scores:
those of the list, `lm_log10` (log10 of the probability of the sentence, `</s>` in it) and `words`,
their number. Word errors are substitutions, deletions and insertions; the word error rate (WER) is
their number by that of reference words. Errors in a line name it, but not the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqtool.core.arrays import Doubles, Longs
from seqtool.core.errors import ConfigError, DataError
from seqtool.core.reading import STDIN, LineBlocks, read_blocks
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm.model import LanguageModel
from seqtool.lm.protocol import State
from seqtool.lm.tables import table_rows
from seqtool.text.tokenizers import word_spans

LM, WORDS, TOTAL = "lm_log10", "words", "total"
STEPS = (*(-0.03, 0.03, -0.1, 0.1, -0.3, 0.3, -1.0, 1.0), *(-3.0, 3.0, 10.0))
BAR, MOSES = " ||| ", ("id", "text", "features", "score")
FORMATS = "UTT-N WORDS, ID ||| WORDS ||| FEATURES ||| SCORE, or a TSV with columns id and text"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Hypothesis(NamedTuple):
    """A line of a list: cells by column, id and text among them, scores by name, its number."""

    cells: Mapping[str, str]
    scores: Mapping[str, float]
    line: int


class Utterance(NamedTuple):
    """The cells of the H hypotheses of an utterance, and all their scores, name -> [H]."""

    id: str
    cells: Sequence[Mapping[str, str]]
    scores: Mapping[str, Doubles]

    def default_weights(self) -> dict[str, float]:
        """Return 1 for each score, 0 for `words` and for the features in the score of Moses."""
        ones = (LM, "score") if "features" in self.cells[0] else {*self.scores} - {WORDS}
        return {name: float(name in ones) for name in self.scores}

    def totals(self, weights: Mapping[str, float]) -> Doubles:
        """Return the weighted sums of the scores, [H]; the first of the highest is the best."""
        named = {name: weight for name, weight in weights.items() if weight and name in self.scores}
        return sum((x * self.scores[name] for name, x in named.items()), 0.0 * self.scores[WORDS])

    def columns(self, totals: Doubles) -> dict[str, Sequence[str] | Doubles]:
        """Return the table of the hypotheses: what the list has, lm_log10 and total."""
        of_list = {name: [row.get(name, "") for row in self.cells] for name in self.cells[0]}
        return {**of_list, LM: self.scores[LM], TOTAL: totals}

    def errors(self, reference: str) -> Longs:
        """Return the word errors of each hypothesis, [H]."""
        words = words_of(reference)
        return np.array([word_errors(words, words_of(row["text"])) for row in self.cells])


def read_nbest(path: str, costs: Sequence[str] = ()) -> Iterator[list[Hypothesis]]:
    """Return the utterances of a list, each as soon as it is read.

    The path "-" is stdin. Files of costs give each `UTT-N` of Kaldi a cost, which is read as the
    score -cost and called as the file is.

    Raises:
        ConfigError: files of costs beside another list than Kaldi's.
        DataError: it is no such list; also when iterated.
    """
    shown = "<stdin>" if path == STDIN else path
    blocks: Iterator[bytes] = read_blocks([path], as_written=True, live=True)
    lines = _lines(blocks)
    first = next((line for line in lines if line[1].strip()), (1, ""))
    is_moses, is_table = BAR in first[1], {"id", "text"} <= {*first[1].rstrip().split("\t")}
    if costs and (is_moses or is_table):
        raise ConfigError("--costs are files beside Kaldi's list", hint="drop them")
    named = {Path(name).name: read_lines(name) for name in costs}
    if len(named) < len(costs) or {*named} & {"id", "hypothesis", "text", LM, WORDS, TOTAL}:
        hint = "rename the files: the columns of the table are called as they are"
        raise ConfigError("two columns would have one name", hint=hint)
    lines = chain([first], lines)
    read = _read_moses if is_moses else partial(_read_kaldi, named)
    hypotheses: Iterator[Hypothesis] = (read(line, n) for n, line in lines if line.strip())
    if is_table:
        hypotheses = _read_table(table_rows((line for _, line in lines), "\t", shown))
    return _utterances(hypotheses)


def _utterances(hypotheses: Iterable[Hypothesis]) -> Iterator[list[Hypothesis]]:
    """Yield the hypotheses of each utterance, which stand together."""
    seen: set[str] = set()
    for key, group in groupby(hypotheses, lambda each: each.cells["id"]):
        utterance = [*group]
        if key in seen:
            hint = "let the hypotheses of an utterance stand together: sort the list"
            raise DataError(f"the utterance {key!r} comes again", hint=hint, line=utterance[0].line)
        seen.add(key)
        yield utterance


def _lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1, and with LF, as the reader of tables takes them."""
    lines = (line for block in blocks for line in block.decode().split("\n")[:-1])
    return ((number, f"{line}\n") for number, line in enumerate(lines, 1))


def numbers_of(texts: Mapping[str, str], line: int | None = None) -> dict[str, float]:
    """Return numbers by their names; a DataError, with the line, where a text is none."""
    for name, text in texts.items():
        if _NUMBER.fullmatch(text.strip()) is None or math.isinf(float(text)):
            what, hint = f"{name} is {text.strip()!r}, which is no number", "write one, as -0.5"
            raise DataError(what, hint=hint, line=line)
    return {name: float(text) for name, text in texts.items()}


def _read_kaldi(costs: Mapping[str, Mapping[str, str]], line: str, number: int) -> Hypothesis:
    key, text = [*line.strip().split(maxsplit=1), ""][:2]
    if (parts := re.fullmatch(r"(.+)-\d+", key)) is None:
        raise DataError("no line of an n-best list", hint=f"write {FORMATS}", line=number)
    own = numbers_of({name: costs[name].get(key, "") for name in costs}, number)
    scores = {name: 0.0 - cost for name, cost in own.items()}
    cells = {"id": parts[1], "hypothesis": key, "text": text} | {
        k: repr(v) for k, v in scores.items()
    }
    return Hypothesis(cells, scores, number)


def _read_moses(line: str, number: int) -> Hypothesis:
    parts = line.rstrip("\n").split(BAR)
    if len(parts) < len(MOSES):
        raise DataError("too few fields between |||", hint=f"write {FORMATS}", line=number)
    values: dict[str, str] = {}
    name, place = "feature", 0
    for word in parts[2].split():
        name, place = (word[:-1], 0) if word[-1] in "=:" else (name, place + 1)
        values |= {f"{name}.{place}" if place > 1 else name: word} if place else {}
    cells = dict(zip(MOSES, map(str.strip, parts), strict=False))
    return Hypothesis(cells, numbers_of({**values, "score": parts[3]}, number), number)


def _read_table(rows: Iterator[tuple[int, list[str]]]) -> Iterator[Hypothesis]:
    _, names = next(rows)
    numeric: list[str] | None = None
    for line, row in rows:
        cells = dict(zip(names, row, strict=True))
        if numeric is None:  # the first row shows which columns these are
            others = (name for name in names if name not in ("id", "text", LM, WORDS, TOTAL))
            numeric = [name for name in others if _is_meant(cells[name].strip())]
        yield Hypothesis(cells, numbers_of({name: cells[name] for name in numeric}, line), line)


def _is_meant(text: str) -> bool:
    """Whether a cell is meant as a number: `nan` and `inf` are, and are refused as such."""
    return bool(_NUMBER.fullmatch(text)) or text.lower().lstrip("+-") in ("nan", "inf")


def read_lines(path: str | Path) -> dict[str, str]:
    """Return what follows the first word of each line, by that word."""
    lines = _lines(read_blocks([path], as_written=True))
    split = (line.strip().split(maxsplit=1) for _, line in lines)
    return {words[0]: "".join(words[1:]) for words in split if words}


def rescore(
    model: LanguageModel, nbest: Iterable[list[Hypothesis]], *, carry_state: bool = False
) -> Iterator[Utterance]:
    """Score utterances by a language model, one at a time.

    Each hypothesis begins a text, or the model reads on from the first hypothesis of the utterance
    before (`carry_state`).

    Raises:
        DataError: when iterated: a line that the model cannot read.
        ModelError: when iterated: the model gives something that is no probability.
    """
    state = model.start(1)
    for hypotheses in nbest:
        texts = [each.cells["text"] for each in hypotheses]
        names = dict.fromkeys(name for each in hypotheses for name in each.scores)
        try:
            if carry_state:
                nats, state = _read_on(model, state, texts)
            else:
                nats = model.score(texts)
        except DataError as error:  # it counts the sentences
            line = hypotheses[(error.line or 1) - 1].line
            raise DataError(error.message, hint=error.hint, line=line) from error
        scores = {
            name: np.array([each.scores.get(name, 0.0) for each in hypotheses]) for name in names
        }
        scores |= {LM: np.array(nats) / LN_10}
        scores |= {WORDS: np.array([float(len(words_of(text))) for text in texts])}
        yield Utterance(hypotheses[0].cells["id"], [each.cells for each in hypotheses], scores)


def _read_on(model: LanguageModel, state: State, texts: Sequence[str]) -> tuple[list[float], State]:
    """Return nats of texts after a state of one hypothesis, and the state after the first text."""
    ids = model.tokenizer.encode_block(b"".join(LineBlocks(texts)))
    ids_of = np.split(ids, np.flatnonzero(ids == EOS_ID)[:-1] + 1)
    nats, rows = np.zeros(len(texts)), np.arange(len(texts))
    first = state = state[0 * rows]
    for place in range(max(map(len, ids_of))):
        open_ = np.flatnonzero([place < len(ids_of[row]) for row in rows])
        state, rows = state[open_], rows[open_]
        tokens = np.array([ids_of[row][place] for row in rows])
        nats[rows] += model.next_log_probs(state)[np.arange(len(rows)), tokens]
        state = model.advance(state, tokens)
        if rows[0] == 0:
            first = state[rows[:1]]
    return nats.tolist(), first


def words_of(text: str) -> list[str]:
    """Return the words of a text, which blanks separate."""
    return [text[begin:end] for begin, end in word_spans(text)]


def word_errors(reference: Sequence[str], words: Sequence[str]) -> int:
    """Return the fewest substitutions, deletions and insertions that lead to the reference.

    >>> word_errors("the cat sat".split(), "a cat sat down".split())
    2
    """
    row = list(range(len(words) + 1))
    for number, word in enumerate(reference, 1):
        corner, row[0] = row[0], number
        for place, other in enumerate(words, 1):
            least = min(row[place] + 1, row[place - 1] + 1, corner + (word != other))
            corner, row[place] = row[place], least
    return row[-1]


def tune_weights(
    utterances: Iterable[Utterance], references: Mapping[str, str], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return weights with fewer word errors, one after another set to its best value.

    Only ratios matter, so the first one that is not 0 stays. Others may change that are not 0, and
    that of `words`: by `STEPS` of what they are, as long as it helps.

    Raises:
        DataError: there is no reference for any of the utterances.
    """
    known = (each for each in utterances if each.id in references)
    if not (measured := [(each, each.errors(references[each.id])) for each in known]):
        hint = "give ID WORDS in each line, with the ids of the list"
        raise DataError("no utterance of the list has a reference", hint=hint)

    def num_errors(weights: Mapping[str, float]) -> int:
        return sum(int(errors[each.totals(weights).argmax()]) for each, errors in measured)

    _, *free = (name for name, weight in weights.items() if weight or name == WORDS)
    best, before = dict(weights), dict[str, float]()
    while best != before:
        before = best
        for name in free:
            size = abs(best[name] or best[LM])
            tried = [best | {name: best[name] + step * size} for step in STEPS]
            best = min([best, *tried], key=num_errors)
    return best
