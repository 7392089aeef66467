"""Annotation of a corpus by `segment`, `tag` and `parse`, all at once or chunk by chunk.

    Annotation    what is to be done: which work, how text is split, the options of the model
    Chunk         some of a corpus: whole sentences of CoNLL-U, or whole paragraphs of plain text
    Annotated     what has become of it

An annotation can be pickled. A process or a machine that is given one opens the models once, calls
`annotate` for each chunk, and whoever gave it puts the parts together again, in the order of the
chunks: they are those that one process writes, byte for byte as far as the last bits of products
do not depend on what is computed together.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seqtool.core import checkpoint
from seqtool.core.errors import DataError
from seqtool.core.reading import Progress, find_files, read_blocks
from seqtool.parsing.unknown_words import Known, UnknownWords
from seqtool.treebank.conllu import (
    Broken,
    Item,
    SentenceBatch,
    Stretch,
    batches_in,
    columns_of,
    items_in,
    read_batches,
    read_items,
    read_stretches,
    refused,
)
from seqtool.treebank.sentence import FORM, LEMMA, NUM_COLUMNS, UPOS, Sentence

if TYPE_CHECKING:
    from seqtool.parsing.segmenter.documents import TextLayout

# of a chunk: enough words for a parser to be fast, and few enough for all processes to end at once
TREE_BYTES, TEXT_BYTES = 1 << 18, 1 << 16
EARLY_BYTES = 1 << 17  # of a corpus: there are the words that tell whether a model knows its kind

Work = Literal["segment", "tag", "parse"]
Form = Literal["conllu", "text", "lines"]
# what was written of one file, and the name of this
Part: TypeAlias = tuple[str, bytes]
OnBroken: TypeAlias = Callable[[Broken], None]

_NEWDOC = "# newdoc id = "
# bytes of UTF-8 without which no Latin, Greek or Cyrillic letter, syllable of Hangul or kana is in
# parts: to look for them takes next to no time
_PARTS = (b"\xcc", b"\xcd", "\u1100".encode()[:2], "\u3099".encode())
_SENT_ID = re.compile(rb"^# sent_id = ([0-9]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a corpus that is annotated without the rest.

    Attributes:
        stretches: of CoNLL-U, whole sentences; of plain text, parts of documents as `read_parts`
            cuts them, of which the first one of a document has line 1.
        names: the columns of CoNLL-U Plus, of a file whose beginning is in a chunk before.
        is_early: whether it is of the beginning of the corpus, where words and tags are looked up.
    """

    stretches: tuple[Stretch, ...]
    names: Sequence[str] | None = None
    is_early: bool = False


@dataclass(slots=True)
class Seen:
    """Counts of the sentences that went to a model, and of what may be wrong with them.

    Attributes:
        num_sentences: whole ones.
        num_long: of more words than the model looks for the best tree of.
        num_words: so far as all of them had UPOS and a lemma.
        is_tagged: whether all had.
        is_decomposed: whether any has letters that are written in parts, as in Unicode NFD.
        unknown: words and tags at the beginning that the model does not know.
    """

    num_sentences: int = 0
    num_long: int = 0
    num_words: int = 0
    is_tagged: bool = True
    is_decomposed: bool = False
    unknown: UnknownWords = field(default_factory=UnknownWords)

    def add(self, other: Seen) -> None:
        """Count what was seen elsewhere as well."""
        self.num_sentences += other.num_sentences
        self.num_long += other.num_long
        self.num_words += other.num_words
        self.is_tagged = self.is_tagged and other.is_tagged
        self.is_decomposed = self.is_decomposed or other.is_decomposed
        self.unknown.merge(other.unknown)

    def note(self, item: Sentence | SentenceBatch, longest: int | None, *, tags: bool) -> None:
        """Count a sentence, or several; with `tags`, see whether they have any."""
        if isinstance(item, SentenceBatch):
            self.num_sentences += len(item.sentences)
            if not self.is_decomposed and any(part in item.stretch for part in _PARTS):
                self.is_decomposed = _is_decomposed(item.stretch.decode())
            if longest is not None:
                self.num_long += int((item.lengths > longest).sum())
            return
        self.num_sentences += 1
        if not self.is_decomposed:
            self.is_decomposed = _is_decomposed(" ".join(item.column(FORM)))
        if longest is not None:
            self.num_long += len(item) > longest
        if tags and self.is_tagged:
            self.num_words += len(item)
            self.is_tagged = all("_" not in (row[UPOS], row[LEMMA]) for row in item.rows)


def _is_decomposed(text: str) -> bool:
    """Whether a text has parts of letters for which there are whole letters.

    Not all that NFC changes is: of some letters of Indian scripts it has the parts.
    """
    return not text.isascii() and len(unicodedata.normalize("NFC", text)) < len(text)


@dataclass(slots=True)
class Annotated:
    """What has become of a chunk.

    Attributes:
        parts: what is to be written, file by file. Sentences of plain text are numbered from 1 on.
        broken: sentences, with what is wrong with them.
        seen: see there.
    """

    parts: list[Part]
    broken: list[Broken] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)


@dataclass(frozen=True)
class Annotation:
    """What is to be done.

    Attributes:
        work: what the model is for.
        layout: how plain text is split; None for CoNLL-U.
        form: CoNLL-U, or of plain text a line for each sentence: its tokens, or as it is written.
        options: of `parse_stream`, `nbest` or `tag_stream`.
        nbest: how many trees a sentence gets, with their ranks; None for its tree alone.
        clear_deps: leave out the enhanced graph.
        skip_invalid: go on after a broken sentence; otherwise it is an error.
        keeps_invalid: write broken sentences, in their places, as they are.
    """

    work: Work
    layout: TextLayout | None = None
    form: Form = "conllu"
    options: Mapping[str, Any] = field(default_factory=dict)
    nbest: int | None = None
    clear_deps: bool = False
    skip_invalid: bool = False
    keeps_invalid: bool = True

    def read(
        self,
        files: Sequence[str],
        model: Any,
        path: Path | None,
        on_progress: Progress | None = None,
    ) -> Iterator[Item]:
        """Return what is in files.

        Args:
            files: names; see `read_conllu`, and of plain text `segment_files`.
            model: opened; None where text is split without one.
            path: of the model, for errors.
            on_progress: of CoNLL-U, called with bytes read and their total.

        Raises:
            DataError, ConfigError, ModelError: now or when iterated: see there.
        """
        if self.layout is not None:
            return self.layout.read(files, model, path)
        if self.work == "parse":
            return read_batches(files, skip_invalid=True, on_progress=on_progress)
        return read_items(files, check="columns", on_progress=on_progress)

    def read_chunks(
        self,
        files: Sequence[str],
        *,
        size: int | None = None,
        on_progress: Progress | None = None,
    ) -> Iterator[Chunk]:
        """Give what is in files in chunks of about `size` bytes; arguments are those of `read`.

        The size, if not given, is one of about 4,000 words of trees, and 10,000 of text.

        Raises:
            DataError: when iterated: a file that cannot be read.
        """
        if size is None:
            size = TREE_BYTES if self.layout is None else TEXT_BYTES
        num_bytes = 0
        for stretches, names in self._chunks(files, size, on_progress):
            yield Chunk(stretches, names, is_early=num_bytes < EARLY_BYTES)
            num_bytes += sum(len(content) for _, _, content in stretches)

    def _chunks(
        self, files: Sequence[str], size: int, on_progress: Progress | None
    ) -> Iterator[tuple[tuple[Stretch, ...], Sequence[str] | None]]:
        """Give stretches that make a chunk, and the columns of the file of the first one."""
        # the last chunks: one that is whole, unless too little comes after it, and the next one
        parts: list[list[Stretch]] = []
        names_of: list[Sequence[str] | None] = []
        names = damaged = None
        num_bytes = 0
        try:
            for stretch in self._stretches(files, size, on_progress):
                path, line, content = stretch
                if self.layout is None and line == 1:
                    names = columns_of(content, path)
                # what is read of a file at a time ends with a sentence, so it is some less
                if not parts or num_bytes >= size * 3 // 4:
                    if len(parts) == 2:
                        yield tuple(parts.pop(0)), names_of.pop(0)
                    parts.append([])
                    names_of.append(names)
                    num_bytes = 0
                parts[-1].append(stretch)
                num_bytes += len(content)
        except DataError as error:  # what was read before comes first
            damaged = error
        # a parser that misses a column goes by more words than a small rest may have
        if len(parts) == 2 and num_bytes < size // 2:
            parts = [parts[0] + parts[1]]
        for part, part_names in zip(parts, names_of, strict=False):
            yield tuple(part), part_names
        if damaged is not None:
            raise damaged

    def _stretches(
        self, files: Sequence[str], size: int, on_progress: Progress | None
    ) -> Iterator[Stretch]:
        if self.layout is None:
            yield from read_stretches(files, on_progress=on_progress, block_size=size)
            return
        from seqtool.parsing.segmenter.documents import read_parts

        line = 1
        for name, text, begins in read_parts(files, given=self.layout.given, size=size):
            line = 1 if begins else line
            yield name, line, text.encode()
            line += text.count("\n")

    def watched(
        self,
        items: Iterable[Item],
        model: Any,
        seen: Seen,
        on_broken: OnBroken,
        *,
        looks: bool = True,
    ) -> Iterator[Item]:
        """Pass items on to a model, and count them; a broken sentence is reported, or refused.

        Args:
            items: sentences, and broken ones.
            model: that gets them.
            seen: to be added to.
            on_broken: called with each broken sentence.
            looks: for words that the model does not know.

        Raises:
            DataError: when iterated: there is one, and it is not to be skipped.
        """
        longest = getattr(model, "longest", None) if self.work == "parse" else None
        known: Known | None = getattr(model, "known", None)
        if not looks or self.work == "segment":
            known = None
        elif known is not None and (self.work == "tag" or self.options.get("retag")):
            known = known.without_tags
        for item in items:
            if not isinstance(item, Broken):
                if known is not None and not seen.unknown.is_enough:
                    seen.unknown.add(
                        item.to_sentences() if isinstance(item, SentenceBatch) else [item], known
                    )
                seen.note(item, longest, tags=self.work == "tag")
                yield item
                continue
            if not self.skip_invalid:
                raise refusal(item, model)
            on_broken(item)
            if self.keeps_invalid:
                yield item

    def parts(self, items: Iterable[Item], model: Any, path: str = "") -> Iterator[Part]:
        """Annotate items, and give what is written of each with the name of its file.

        Args:
            items: sentences, in order.
            model: opened.
            path: the file of the first ones, where these do not say it.
        """
        return self.written(self.annotated(items, model), path)

    def written(self, items: Iterable[Item], path: str = "") -> Iterator[Part]:
        """Give what is written of items that were annotated, as `parts` does."""
        for item in items:
            if self.layout is not None:
                assert isinstance(item, Sentence)
                if item.comments and item.comments[0].startswith(_NEWDOC):
                    path = item.comments[0].removeprefix(_NEWDOC)
            else:
                path = item.error.path or "" if isinstance(item, Broken) else item.path
            yield path, self._written(item)

    def annotated(self, items: Iterable[Item], model: Any) -> Iterator[Item]:
        """Give items with all that the model gives them."""
        if self.work == "segment":
            yield from items
        elif self.work == "tag":
            yield from model.tag_stream(items, **self.options)
        elif self.nbest is None:
            yield from model.parse_stream(items, **self.options)
        else:
            for ranked in model.nbest(items, self.nbest, **self.options):
                yield from ranked if isinstance(ranked, list) else [ranked]

    def _written(self, item: Item) -> bytes:
        if isinstance(item, SentenceBatch):
            return item.to_bytes(clear_deps=self.clear_deps)
        if self.form == "conllu" or isinstance(item, Broken):
            return item.to_conllu(clear_deps=self.clear_deps).encode()
        line = _tokens_line(item) if self.form == "text" else _written_line(item)
        return f"{line}\n".encode()

    def items(self, chunk: Chunk, model: Any) -> Iterator[Item]:
        """Give what is in a chunk, which a model that is open may have to split."""
        if self.layout is not None:
            from seqtool.parsing.segmenter.documents import segment_parts

            documents = (
                (name, [content.decode()], line == 1) for name, line, content in chunk.stretches
            )
            splitter = self.layout.splitter(model, None)
            return segment_parts(documents, splitter, given=self.layout.given)
        if self.work == "parse":
            return batches_in(chunk.stretches, names=chunk.names)
        return items_in(chunk.stretches, check="columns", names=chunk.names)

    def annotate(self, chunk: Chunk, model: Any) -> Annotated:
        """Annotate a chunk with a model that is open.

        Raises:
            DataError: a broken sentence, or one that lacks a column that the model reads.
        """
        result = Annotated([])
        path = chunk.stretches[0][0]
        items = self.items(chunk, model)
        watched = self.watched(
            items, model, result.seen, result.broken.append, looks=chunk.is_early
        )
        parts = self.parts(watched, model, path)
        for name, contents in groupby(parts, key=itemgetter(0)):
            result.parts.append((name, b"".join(content for _, content in contents)))
        return result


def put_together(
    annotation: Annotation, annotated: Iterable[Annotated], seen: Seen, on_broken: OnBroken
) -> Iterator[Part]:
    """Give what has become of chunks, in order, as one process would write it.

    Args:
        annotation: what was done.
        annotated: what `Annotation.annotate` made of each chunk of a corpus.
        seen: to be added to.
        on_broken: called with each broken sentence.
    """
    for done in annotated:
        for broken in done.broken:
            on_broken(broken)
        for path, content in done.parts:
            if annotation.layout is not None and annotation.form == "conllu":
                content = renumbered(content, seen.num_sentences)
            yield path, content
        seen.add(done.seen)


def renumbered(content: bytes, num_before: int) -> bytes:
    """Return CoNLL-U whose sentences are numbered from 1 on, with `num_before` added to each."""
    if not num_before:
        return content
    return _SENT_ID.sub(lambda number: b"# sent_id = %d" % (int(number[1]) + num_before), content)


def usable_files(
    inputs: Sequence[str], on_damaged: Callable[[DataError], None], *, texts: bool
) -> list[str]:
    """Return the files of a corpus that can be read to their ends; stdin and pipes are not tried.

    Args:
        inputs: files and directories.
        on_damaged: called with what is wrong with each file that is left out.
        texts: they are plain text, not CoNLL-U.

    Raises:
        DataError: a file is not there, or none can be read.
    """
    usable: list[str] = []
    first: DataError | None = None
    for name in find_files(inputs, treebanks=not texts):
        try:
            if not Path(name).is_file():  # stdin, or a pipe: it can be read once only
                pass
            elif texts:
                from seqtool.parsing.segmenter.documents import read_documents

                for _, pieces in read_documents([name]):
                    deque(pieces, maxlen=0)
            else:
                blocks = iter(read_blocks([name], treebanks=True))
                columns_of(next(blocks, b""), name)  # which it may name
                deque(blocks, maxlen=0)
        except DataError as error:
            first = first or error
            on_damaged(error)
        else:
            usable.append(name)
    if first is not None and not usable:
        raise DataError(
            f"no file can be read; the first one: {first.message}", hint=first.hint, path=first.path
        )
    return usable


def refusal(broken: Broken, model: Any) -> DataError:
    """Return the error of a broken sentence; plain text gets a hint of its own."""
    lines = [line for line in broken.text.split("\n") if not line.startswith("#")]
    # of columns that are apart by spaces, the error says so
    is_table = all("\t" in line or len(line.split()) == NUM_COLUMNS for line in lines)
    if is_table or "\t" in broken.text:
        return refused(broken)
    who = "" if hasattr(model, "segment") else ", by a model of `seqtool train-parser --raw`"
    return DataError(
        "no CoNLL-U: the lines have no columns",
        hint=f"if it is plain text, add --raw to read it{who}",
        path=broken.error.path,
        line=broken.error.line,
    )


def _tokens_line(sentence: Sentence) -> str:
    """Return the tokens of a sentence, as they are written, with blanks between them."""
    forms = dict(enumerate(sentence.column(FORM), start=1))
    for first, last, columns in sentence.multiword_tokens():
        forms[first] = columns[FORM]
        for word in range(first + 1, last + 1):
            del forms[word]
    # a blank inside a token would make two of it
    return " ".join(form.replace(" ", "\u00a0") for form in forms.values())


def _written_line(sentence: Sentence) -> str:
    """Return a sentence as it is written, with single blanks where there is whitespace."""
    comment = next(line for line in sentence.comments if line.startswith("# text = "))
    return comment.removeprefix("# text = ")


def open_models(paths: Sequence[Path]) -> Any:
    """Open the model at a path, or several as one; None of no path, for text split without one.

    Raises:
        ModelError: there is no such model, or it is damaged.
    """
    return checkpoint.load(paths) if paths else None


def make_annotator(annotation: Annotation, paths: Sequence[Path]) -> Callable[[Chunk], Annotated]:
    """Return what annotates chunks, with models that are opened now; arguments can be pickled."""
    model = open_models(paths)
    return lambda chunk: annotation.annotate(chunk, model)
