"""The inputs that a pipeline, segmenter, tagger or parser is called with, as sentences.

    "I love it. So do you."               a text; always a text, never the name of a file
    ["I love it.", "So do you."]          several texts, each a document
    [["I", "love", "it", "."]]            sentences of words
    Path("letter.txt")                    a file: CoNLL-U (.conllu), or plain text
    Doc, Sentence, [Sentence, ...]        what seqtool gives; copies are annotated
    conllu.TokenList, conllu.SentenceList
    spacy.tokens.Doc                      its tokens; its sentences, where it has any

Any of these, but for words, may stand in a list or come from a generator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from seqtool.core.errors import ConfigError, DataError, ModelError, SeqtoolError
from seqtool.core.reading import is_conllu, is_treebank, whole_text
from seqtool.treebank.conllu import kind_of, read_conllu
from seqtool.treebank.document import Doc, from_tokenlist
from seqtool.treebank.sentence import NUM_COLUMNS, Sentence, parse_sentence

# documents of spaCy, and what conllu gives, have no types where these are not installed
Given: TypeAlias = str | Path | Doc | Sentence | Iterable[Any] | Any
BATCH_SIZE = 256  # inputs that are worked on together at most, where many are given
FIRST_CHARACTERS = 1 << 16  # of a text, to see whether it is CoNLL-U
Annotate = Callable[[Iterator[Sentence]], Iterable[Any]]
# gives the sentences of a text, or of a file of plain text, numbered from a number on
ReadText = Callable[[str | Path, int], Iterable[Sentence]]


def annotate(
    given: Given, work: Annotate, read_text: ReadText | None, *, what: str, only_texts: bool = False
) -> Doc:
    """Return an input as a document, with all that `work` gives its sentences.

    Args:
        given: see the table of this module.
        work: takes sentences and gives them, annotated.
        read_text: splits a text; None refuses texts.
        what: the model, as a message names it.
        only_texts: refuse what is sentences already.

    Raises:
        TypeError: something else is given.
        DataError: what no sentence can be made of.
        ModelError: a text for a model that reads sentences.
    """
    return Doc(work(_sentences(given, read_text, what, only_texts)))


def annotate_each(
    inputs: Iterable[Given],
    work: Annotate,
    read_text: ReadText | None,
    *,
    what: str,
    only_texts: bool = False,
    batch_size: int = BATCH_SIZE,
) -> Iterator[Doc]:
    """Give a document for each input, in order; `work` gets the sentences of a batch together.

    The first batch is one input, and each has twice as many as the one before, up to `batch_size`:
    so the first answer comes as soon as that of a single call. An input that cannot be read raises
    its error after the answers to those before it; a note tells its number. What a model refuses
    ends its whole batch.

    Raises:
        TypeError: a single text or path, whose letters would be taken for inputs.
        ConfigError: a batch of no inputs.
    """
    if isinstance(inputs, str | Path):
        raise TypeError(f"expected a list of inputs, not {inputs!r} alone: put it into a list")
    if batch_size < 1:
        hint = "give how many inputs to work on together"
        raise ConfigError(f"batch_size is {batch_size}, but must be at least 1", hint=hint)
    counts: deque[int] = deque()
    failures: list[Exception] = []

    def sentences(batch: list[tuple[int, Given]]) -> Iterator[Sentence]:
        for number, given in batch:
            try:
                of_input = list(_sentences(given, read_text, what, only_texts))
            except (SeqtoolError, TypeError) as error:
                error.add_note(f"It is input {number} of pipe, from 1 on.")
                failures.append(error)
                return
            counts.append(len(of_input))
            yield from of_input

    numbered, size = enumerate(inputs, start=1), 1
    while not failures and (batch := list(islice(numbered, size))):
        document: list[Sentence] = []
        for sentence in work(sentences(batch)):
            while counts[0] == len(document):
                yield Doc(document)
                document = []
                counts.popleft()
            document.append(sentence)
        while counts:
            yield Doc(document)
            document = []
            counts.popleft()
        size = min(2 * size, batch_size)
    if failures:
        raise failures[0]


def _sentences(
    given: Given, read_text: ReadText | None, what: str, only_texts: bool
) -> Iterator[Sentence]:
    """Give the sentences of an input; those that were there already as copies."""
    number = 1
    for part in _parts(given):
        if only_texts and (not isinstance(part, str | Path) or _is_conllu(part)):
            raise TypeError(f"a {what} takes texts, or pathlib.Paths of texts, not {kind_of(part)}")
        for sentence in _sentences_of(part, read_text, number, what):
            number += 1
            yield sentence


def _is_spacy(given: object) -> bool:
    """Whether something is a document of spaCy, which may not be installed."""
    kinds = ((kind.__module__, kind.__name__) for kind in type(given).__mro__)
    return ("spacy.tokens.doc", "Doc") in kinds


def _parts(given: Given) -> Iterable[Any]:
    """Return what is in a list, or the input itself."""
    if isinstance(given, str | Path | Doc | Sentence) or _is_spacy(given):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        parts = iter(given)
        begin = list(islice(parts, 1))
        if begin and isinstance(begin[0], Mapping):  # a list of tokens is one TokenList
            return [given if isinstance(given, list | tuple) else [*begin, *parts]]
        return chain(begin, parts)
    raise _refused(given)


def _sentences_of(
    part: Any, read_text: ReadText | None, number: int, what: str
) -> Iterable[Sentence]:
    """Return the sentences of one of the things that `_parts` gives, from a number on."""
    match part:
        case Sentence():
            return [part.copy()]
        case Doc():
            return [sentence.copy() for sentence in part]
        case Path() if _is_conllu(part):
            return read_conllu(part, check="columns", skip_option="")
        case str() | Path():
            if read_text is None:
                raise ModelError(
                    f"a {what} reads sentences of words, not plain text",
                    hint="load a model of seqtool.train_pipeline (seqtool train-parser --raw), or "
                    'give words: [["The", "dog", "sleeps"]]',
                )
            if isinstance(part, str):
                beginning = part[:FIRST_CHARACTERS].encode(errors="replace")
                if is_conllu(beginning):
                    raise DataError(
                        "the text is CoNLL-U, whose words a model does not have to find",
                        hint="give seqtool.read_conllu(text), or a pathlib.Path of the file",
                    )
            return read_text(part, number)
        case [*_] if part and all(isinstance(item, Mapping) for item in part):
            return [from_tokenlist(part, number)]
        case [*_] if all(isinstance(item, str) for item in part):
            return [_of_words(part, number)]
    if _is_spacy(part):
        from seqtool.parsing.spacy import from_spacy

        return from_spacy(part, read_text)[0]
    raise _refused(part)


def _of_words(words: Sequence[str], number: int) -> Sentence:
    """Return a sentence of words alone."""
    if not words:
        raise DataError(f"sentence {number} has no words", hint="leave it out")
    rest = "\t_" * (NUM_COLUMNS - 2)
    lines = []
    for place, word in enumerate(words, start=1):
        if not word.strip() or any(character in word for character in "\t\n\r"):
            raise DataError(
                f"word {place} of sentence {number} is {word!r}, which no word can be",
                hint="leave it out, or without tabs and line ends",
            )
        whole_text(word, f"word {place} of sentence {number}")
        lines.append(f"{place}\t{word}{rest}")
    return parse_sentence("\n".join(lines), "", 0, "columns")


def _is_conllu(given: str | Path) -> bool:
    return isinstance(given, Path) and is_treebank(given)


def _refused(given: object) -> TypeError:
    hint = "; decode them, or call seqtool.read_conllu" if isinstance(given, bytes) else ""
    inside = ""
    if isinstance(given, list | tuple):
        inside = f" with {kind_of(next(item for item in given if not isinstance(item, str)))} in it"
    return TypeError(
        "expected a text, a list of texts, a list of lists of words, a pathlib.Path, sentences, "
        f"TokenLists of conllu or documents of spaCy, not {kind_of(given)}{inside}{hint}"
    )
