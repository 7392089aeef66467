"""Sentences as JSON, one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from seqtool.treebank.drawing.marked import MarkedSentence
from seqtool.treebank.sentence import COLUMNS, DEPREL, HEAD

_NAMES = tuple(name.lower() for name in COLUMNS)


def json_lines(sentences: Iterable[MarkedSentence]) -> Iterator[str]:
    """Give a line for each sentence: see `to_object`."""
    for sentence in sentences:
        yield json.dumps(to_object(sentence), ensure_ascii=False) + "\n"


def to_object(marked: MarkedSentence) -> dict[str, Any]:
    """Return a sentence as an object.

    `id` (null without one) and `text`; `words` with their ten columns under lower-case names, `id`
    and `head` as numbers, the others as they were read, `_` where there is nothing;
    `multiword_tokens` and `empty_nodes` where there are any. Compared with a gold annotation, a
    word has `gold` (head and deprel) and `wrong`.
    """
    sentence = marked.sentence
    words = []
    for word, row in enumerate(sentence.rows, start=1):
        columns: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
        columns["id"], columns["head"] = word, marked.heads[word - 1]
        if marked.gold_heads is not None and marked.gold_relations is not None:
            columns["gold"] = {
                _NAMES[HEAD]: marked.gold_heads[word - 1],
                _NAMES[DEPREL]: marked.gold_relations[word - 1],
            }
            columns["wrong"] = marked.correction(word) is not None
        words.append(columns)
    result: dict[str, Any] = {"id": marked.name or None, "text": marked.text, "words": words}
    for position, line in sentence.extras:
        columns = dict(zip(_NAMES, line.split("\t"), strict=True))
        first, dash, last = columns["id"].partition("-")
        if dash:
            token = {**columns, "first": int(first), "last": int(last)}
            result.setdefault("multiword_tokens", []).append(token)
        else:
            result.setdefault("empty_nodes", []).append({**columns, "after": position})
    return result
