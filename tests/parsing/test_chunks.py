"""Chunks of sentences, as streams are worked on: in order, and no more than a chunk is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from seqtool.core.errors import DataError
from seqtool.parsing.model import in_chunks
from seqtool.treebank.conllu import Broken
from seqtool.treebank.sentence import Sentence

ROW = ["1", "a", "_", "_", "_", "_", "0", "root", "_", "_"]
NUM = 5  # words of a chunk


def broken(num_lines: int) -> Broken:
    return Broken("\n".join(["x"] * num_lines), DataError("nine columns"))


class Counted:
    """Items, and how many of them were taken."""

    def __init__(self, items: Iterable[Sentence | Broken]) -> None:
        self.items, self.num_taken = items, 0

    def __iter__(self) -> Iterator[Sentence | Broken]:
        for item in self.items:
            self.num_taken += 1
            yield item


def test_runs_of_broken_sentences_are_passed_on() -> None:
    sentences = [Sentence([], [list(ROW)], []) for _ in range(12)]
    items = [*sentences[:3], *(broken(2) for _ in range(100)), *sentences[3:]]
    worked: list[Sentence] = []
    source = Counted(items)
    for place, item in enumerate(in_chunks(source, NUM, worked.extend)):
        assert item is items[place]
        assert source.num_taken - place <= 2 * NUM  # 4 words and 2 broken ones fill no chunk
    assert worked == sentences


def test_runs_of_broken_sentences_do_not_fill_a_detailed_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(details, "CHUNK_WORDS", NUM)
    sentences = [Sentence([], [list(ROW)], []) for _ in range(4)]
    items = [*sentences[:2], *(broken(1) for _ in range(100)), *sentences[2:]]
    found: list[Sentence | Broken] = []
    firsts = []
    for chunk, is_only in details.chunks(items):
        assert len(chunk) <= 2 * NUM
        found += chunk
        firsts.append(is_only)
    assert found == items
    assert len(firsts) > 10
    assert not any(firsts)
    # what fits into one chunk is told to be all
    assert [is_only for _, is_only in details.chunks(items[:4])] == [True]
