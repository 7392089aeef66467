"""CoNLL-U files, read and written; only heads and relations ever change.

    read_conllu    sentences; a broken one is an error, or left out
    read_items     sentences, and broken ones in their places
    read_batches   for a parser: sentences that compiled code reads, many in one item, and the rest
                   as `read_items` gives them
    write_conllu   writes the items of all three

CoNLL-U is the name of a file, a text, bytes or an open file; see `Source`. A file of CoNLL-U Plus
(universaldependencies.org/ext-format.html) names its columns in the first line:

    # global.columns = ID FORM UPOS HEAD DEPREL PARSEME:MWE
    1   She   PRON  2  nsubj  *
    2   took  VERB  0  root   1:LVC.full

It is read as CoNLL-U: a missing column is `_`, and each that CoNLL-U does not have is an item of
column MISC, `PARSEME:MWE=1:LVC.full`, unless it is `_`, with the escapes of
`seqtool.treebank.misc`. Whatever is read with its trees checked can be read by the CoNLL 2018
scorer too.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import numpy as np
import zstandard

from seqtool.core.arrays import Ints, Longs
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.core.reading import (
    BLOCK_SIZE,
    PLUS_MARK,
    STDIN,
    BlockReader,
    Progress,
    longest_line,
    read_blocks,
    read_open_file,
)
from seqtool.core.storage import atomic_file
from seqtool.core.terminal import stream
from seqtool.treebank.misc import ITEM_BEGIN, PREFIX, escaped
from seqtool.treebank.sentence import (
    CHECKS,
    COLUMNS,
    MISC,
    Check,
    Sentence,
    parse_sentence,
)

if TYPE_CHECKING:
    from seqtool.treebank.scanner import LabelTexts, TextTable

Member = TypeVar("Member")

HELD_OUT_EVERY = 10  # sentences, of which one is kept for validation
SKIP_OPTION = "--skip-invalid"

BATCH_WORDS = 1 << 12  # of a batch, and those that are left of its last sentence
TEXT_TABLE_BYTES = 1 << 26  # of all texts so far; a new table begins when there are more

_MARK = PLUS_MARK.decode()
_OTHER_PACKINGS = (".bz2", ".xz", ".zip")


@dataclass(frozen=True, slots=True)
class Broken:
    """A sentence that is not as it should be.

    Attributes:
        text: its lines as they were read, the last one not ended.
        error: what is wrong, with the file and line.
    """

    text: str
    error: DataError

    @property
    def num_lines(self) -> int:
        """The number of its lines."""
        return self.text.count("\n") + 1

    def to_conllu(self, *, clear_deps: bool = False) -> str:
        """Return the sentence as it was read, whatever is asked for, and a blank line."""
        return self.text + "\n\n"


@dataclass(slots=True, eq=False)
class SentenceBatch:
    """Sentences as compiled code reads them: places in the bytes of a file, and no texts.

    Attributes:
        path: the file.
        line: the 1-based line of the file where `stretch` begins.
        stretch: bytes of the file, with these sentences among others.
        sentences: int64 [S, 3], of each sentence its begin and end in `stretch`, and its number of
            words.
        words: int64 [W, 3], of each word the places of FORM and HEAD and of the end of DEPREL.
        texts: what stands in columns FORM to FEATS of words, each text once.
        numbers: int32 [W], which of these texts each word has.
        trees: int32 [W] heads and int32 [W] numbers of labels that are written instead of columns
            HEAD and DEPREL, and the labels; None: the columns stay as they are.
    """

    path: str
    line: int
    stretch: bytes
    sentences: Longs
    words: Longs
    texts: TextTable
    numbers: Ints
    trees: tuple[Ints, Ints, LabelTexts] | None = None

    @property
    def lengths(self) -> Longs:
        """The number of words of each sentence."""
        return self.sentences[:, 2]

    def to_bytes(self, *, clear_deps: bool = False) -> bytes:
        """Return the sentences as they stand in a file; `clear_deps` as in `Sentence.to_conllu`."""
        # a score in MISC or in a comment is that of another tree
        is_scored = self.trees is not None and any(
            begin.encode() in self.stretch for begin in (ITEM_BEGIN, PREFIX)
        )
        if clear_deps or is_scored:
            texts = [sentence.to_conllu(clear_deps=clear_deps) for sentence in self.to_sentences()]
            return "".join(texts).encode()
        if self.trees is None:
            begins_ends = self.sentences[:, :2].tolist()
            return b"".join(self.stretch[begin:end] + b"\n" for begin, end in begins_ends)
        from seqtool.treebank.scanner import write

        data = np.frombuffer(self.stretch, np.uint8)
        return write(data, self.sentences, self.words, *self.trees)

    def to_sentences(self) -> Iterator[Sentence]:
        """Give each sentence as an object, with its new tree if it has one."""
        line, counted, word = self.line, 0, 0
        for begin, end, length in self.sentences.tolist():
            line += self.stretch.count(b"\n", counted, begin)
            counted = begin
            text = self.stretch[begin : end - 1].decode()  # without its last line end
            sentence = parse_sentence(text, self.path, line, "columns")
            if self.trees is not None:
                heads, labels, label_texts = self.trees
                words = slice(word, word + length)
                names = [label_texts.names[label] for label in labels[words].tolist()]
                sentence.set_tree(heads[words].tolist(), names)
            word += length
            yield sentence


Item: TypeAlias = Sentence | Broken | SentenceBatch

# where CoNLL-U is: a file (packed too), a directory (its .conllu files), `-` for stdin, or
# several of these; or CoNLL-U itself: a `str` with a line end or tab, bytes, an open file
Source: TypeAlias = Sequence[str | Path] | str | Path | bytes | IO[str] | IO[bytes]

# whole sentences of a file: its name, the line of it where they begin, and the lines themselves
Stretch: TypeAlias = tuple[str, int, bytes]

TEXT = "<text>"  # in messages, the place of a file's name


def sentences_of(items: Iterable[Item]) -> Iterator[Sentence | Broken]:
    """Give items with each batch as its sentences, for whoever needs these as objects."""
    for item in items:
        if isinstance(item, SentenceBatch):
            yield from item.to_sentences()
        else:
            yield item


def kind_of(thing: object) -> str:
    """Return the name of a thing's type, as an error has it."""
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def no_item(thing: object) -> TypeError:
    """Return the error that something is no sentence, where sentences are expected."""
    return TypeError(
        f"expected sentences, as seqtool.read_conllu gives them, but got {kind_of(thing)}; "
        "call the model itself with texts, words, TokenLists or documents of spaCy"
    )


def refuse_no_sentence(thing: object) -> Sentence:
    """Return a sentence; of anything else, raise a TypeError."""
    if not isinstance(thing, Sentence):
        raise no_item(thing)
    return thing


def read_conllu(
    inputs: Source,
    *,
    check: Check = "tree",
    skip_invalid: bool = False,
    skip_option: str = SKIP_OPTION,
    on_skipped: Callable[[DataError], None] | None = None,
    on_progress: Progress | None = None,
) -> Iterator[Sentence]:
    r"""Read the sentences of CoNLL-U one after another; memory does not grow with the files.

    Byte order marks and CRLF are accepted, and several blank lines, and none at the end.

    >>> import seqtool
    >>> text = "1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n"
    >>> [sentence.text for sentence in seqtool.read_conllu(text)]
    ['Hi']

    Args:
        inputs: files (packed too), directories (their .conllu files) and `-` for stdin; or
            CoNLL-U itself: a `str` with a line end or a tab, bytes, or an open file. A `str`
            without either is the name of a file.
        check: "tree" wants a tree in each sentence: heads in range, one root, no cycle; "columns"
            lets HEAD and DEPREL be anything, as they are to be written anew.
        skip_invalid: leave out sentences that are broken.
        skip_option: the option to advise for broken sentences; none if empty.
        on_skipped: called with what is wrong with each sentence left out.
        on_progress: called with (bytes read from disk, their total or None).

    Raises:
        DataError: when iterated: a broken sentence with its line, no sentence at all, or a file
            that cannot be read, is not UTF-8 (with the byte offset) or damaged.
        ConfigError: when iterated: `check` is neither.
    """
    if check not in CHECKS:  # else a slip of the pen would let every tree pass
        raise ConfigError(f"check is {check!r}", hint=f"give one of {', '.join(CHECKS)}")
    first: DataError | None = None
    nothing = True
    for item in read_items(inputs, check=check, on_progress=on_progress):
        if isinstance(item, Sentence):
            nothing = False
            yield item
            continue
        if not skip_invalid:
            raise refused(item, skip_option)
        first = first or item.error
        if on_skipped is not None:
            on_skipped(item.error)
    if nothing and first is not None:
        message = f"every sentence is broken; the first one: {first.message}"
        raise DataError(message, hint=first.hint, path=first.path, line=first.line)


def read_items(
    inputs: Source, *, check: Check = "tree", on_progress: Progress | None = None
) -> Iterator[Sentence | Broken]:
    """Read like `read_conllu`, with a broken sentence as an item of its own, in its place.

    Raises:
        DataError: when iterated: no sentence at all, or a file that cannot be read.
    """
    return items_in(read_stretches(inputs, on_progress=on_progress), check=check)


def items_in(
    stretches: Iterable[Stretch], *, check: Check = "tree", names: Sequence[str] | None = None
) -> Iterator[Sentence | Broken]:
    """Give the sentences of stretches of files as `read_items` does.

    The names are the columns of CoNLL-U Plus; give them where the first stretch does not begin its
    file.
    """
    for path, line, stretch in stretches:
        if line == 1:  # of a new file
            names = columns_of(stretch, path)
        for first, text in _texts_in(line, stretch, names):
            yield read_item(text, path, first, check)


def read_batches(
    inputs: Source, *, skip_invalid: bool = False, on_progress: Progress | None = None
) -> Iterator[Item]:
    """Read like `read_items` by the check "columns", without an object for each sentence.

    Compiled code takes all sentences but those that it does not understand: broken ones, and the
    few others that only look so. These are read one by one, as `read_items` reads all.

    Raises:
        DataError: when iterated: a broken sentence, unless `skip_invalid`, no sentence at all, or a
            file that cannot be read.
    """
    items = batches_in(read_stretches(inputs, on_progress=on_progress))
    return items if skip_invalid else map(_intact, items)


def batches_in(
    stretches: Iterable[Stretch], *, names: Sequence[str] | None = None
) -> Iterator[Item]:
    """Give the sentences of stretches of files in batches, broken ones too; `names` as above."""
    from seqtool.treebank.scanner import Scanner, TextTable

    scanner, texts = Scanner(), TextTable()
    for path, line, stretch in stretches:
        if line == 1:  # of a new file
            names = columns_of(stretch, path)
        if names is not None:
            yield from items_in([(path, line, stretch)], check="columns", names=names)
            continue
        data = np.frombuffer(stretch, np.uint8)
        position = counted = 0
        odd_line = line  # of the last odd sentence, up to which line ends are counted
        while position < len(stretch):
            sentences, words, position, is_odd = scanner.find(data, position, BATCH_WORDS)
            if len(sentences):
                numbers = texts.numbers(data, words)
                yield SentenceBatch(path, line, stretch, sentences, words, texts, numbers)
                if texts.num_bytes > TEXT_TABLE_BYTES:
                    texts = TextTable()  # the batches before keep theirs
            if is_odd:
                odd_line += stretch.count(b"\n", counted, position)
                counted = position
                end = stretch.find(b"\n\n", position)
                end = len(stretch) - 1 if end < 0 else end
                yield read_item(stretch[position:end].decode(), path, odd_line, "columns")
                position = end


def _intact(item: Item) -> Item:
    if isinstance(item, Broken):
        raise refused(item)
    return item


def read_item(text: str, path: str, line: int, check: Check) -> Sentence | Broken:
    """Return what the lines between two blank ones are; see `parse_sentence`."""
    try:
        return parse_sentence(text, path, line, check)
    except DataError as error:
        return Broken(text, error)


def refused(broken: Broken, skip_option: str = SKIP_OPTION) -> DataError:
    """Return the error to be raised for a broken sentence; an option to advise may be empty."""
    error = broken.error
    advice = f", or skip broken sentences with {skip_option}" if skip_option else ""
    return DataError(error.message, hint=f"{error.hint}{advice}", path=error.path, line=error.line)


@overload
def write_conllu(sentences: Iterable[Item], *, clear_deps: bool = False) -> str: ...
@overload
def write_conllu(
    sentences: Iterable[Item],
    target: str | Path | IO[bytes] | IO[str],
    *,
    clear_deps: bool = False,
) -> None: ...
def write_conllu(
    sentences: Iterable[Item],
    target: str | Path | IO[bytes] | IO[str] | None = None,
    *,
    clear_deps: bool = False,
) -> str | None:
    """Write sentences as CoNLL-U, each followed by a blank line.

    A file appears only when it is complete, so it may be the one that is being read.

    Args:
        sentences: what to write; taken one after another, so they can be read meanwhile.
        target: a file (packed if its name ends in .gz or .zst), `-` for stdout, or an open file, of
            text or of bytes. Without one, the text is returned.
        clear_deps: leave out the enhanced graph: DEPS becomes `_`, empty nodes are dropped.

    Raises:
        OSError: the file cannot be written.
        TypeError: what is to be written is no sentence.
    """
    if target is None:
        memory = io.BytesIO()
        write_conllu(sentences, memory, clear_deps=clear_deps)
        return memory.getvalue().decode()
    write_pieces(map(partial(_piece, clear_deps=clear_deps), sentences), target)
    return None


def _piece(item: Item, *, clear_deps: bool) -> bytes:
    if isinstance(item, SentenceBatch):
        return item.to_bytes(clear_deps=clear_deps)
    if isinstance(item, Sentence | Broken):
        return item.to_conllu(clear_deps=clear_deps).encode()
    raise no_item(item)


def write_pieces(pieces: Iterable[bytes], target: Any) -> None:
    """Write pieces one after another; the target and errors are those of `write_conllu`."""
    with open_target(target) as output:
        for piece in pieces:
            output.write(piece)


@contextmanager
def open_target(target: str | Path | IO[bytes] | IO[str]) -> Iterator[IO[bytes]]:
    """Give what whole lines are written to; the target and errors are those of `write_conllu`."""
    if not isinstance(target, str | Path):
        file: Any = target
        if isinstance(target, io.TextIOBase):
            file = SimpleNamespace(write=lambda data: target.write(data.decode()))
        yield file
        return
    if str(target) == STDIN:
        shown = stream()
        yield shown.buffer
        shown.flush()
        return
    suffix = Path(target).suffix.lower()
    if suffix in _OTHER_PACKINGS:
        what = f"files are packed as .gz or .zst, not as {suffix}"
        raise OutputError(what, hint="name the file so, or pack it afterwards", path=target)
    with atomic_file(target) as raw:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, fileobj=raw, mtime=0) as packer:
                yield cast(IO[bytes], packer)
        elif suffix == ".zst":
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packer:
                yield packer
        else:
            yield raw


def _texts_in(line: int, stretch: bytes, names: Sequence[str] | None) -> Iterator[tuple[int, str]]:
    """Give (first line, lines) of each sentence; the names are the columns of CoNLL-U Plus."""
    for piece in stretch.decode().split("\n\n"):
        lines = piece.strip("\n")
        if lines:
            # of more than two line ends in a row, those left over begin the next piece
            first = line + len(piece) - len(piece.lstrip("\n"))
            if names is None:
                yield first, lines
            elif "\n" in lines or not lines.startswith(_MARK):  # which may stand alone
                yield first, "\n".join(_ten_columns(row, names) for row in lines.split("\n"))
        line += piece.count("\n") + 2


def columns_of(stretch: bytes, path: str) -> list[str] | None:
    """Return the columns that the first line of a file names; None of plain CoNLL-U.

    Args:
        stretch: the beginning of the file, with the whole line.
        path: of the file.

    Raises:
        DataError: there is no column for words, or one is named twice.
    """
    if not stretch.startswith(PLUS_MARK):
        return None
    names = stretch.partition(b"\n")[0].decode().removeprefix(_MARK).split()
    if not {"ID", "FORM"} <= set(names) or len(set(names)) < len(names):
        message = f"the columns are {' '.join(names)}: without ID or FORM, or one of them twice"
        hint = "name all columns in this line, each once"
        raise DataError(message, hint=hint, path=path, line=1)
    return None if names == list(COLUMNS) else names  # the line is a comment like others then


def _ten_columns(line: str, names: Sequence[str]) -> str:
    """Return a line of CoNLL-U Plus as one of CoNLL-U, or as it is if columns are missing."""
    if line.startswith(_MARK):
        return f"# source_columns = {' '.join(names)}"  # these lines have ten
    values = line.split("\t")
    if line.startswith("#") or len(values) != len(names):
        return line
    others = dict(zip(names, values, strict=True))
    columns = [others.pop(name, "_") for name in COLUMNS]
    columns[MISC] = to_misc(columns[MISC], others)
    return "\t".join(columns)


def to_misc(misc: str, others: Mapping[str, str]) -> str:
    """Return column MISC with further columns as items."""
    items = [] if misc == "_" else [misc]
    filled = ((name, value) for name, value in others.items() if value not in ("_", ""))
    items += [f"{name}={escaped(value)}" for name, value in filled]
    return "|".join(items) or "_"


def read_stretches(
    inputs: Source, *, on_progress: Progress | None = None, block_size: int = BLOCK_SIZE
) -> Iterator[Stretch]:
    """Read CoNLL-U files as stretches of whole sentences, in UTF-8, each line ended by LF.

    Gives the file, the line of it where the stretch begins, and the stretch.

    Raises:
        DataError: when iterated: no sentence at all, or a file that cannot be read.
    """
    reader = _reader(inputs, block_size, on_progress)
    nothing = True
    for path, line, stretch in _stretches(reader):
        if stretch:
            nothing = nothing and not stretch.strip(b"\n")
            yield path, line, stretch
    if nothing:
        raise DataError(
            "holds no sentences", hint="give a CoNLL-U file with trees", path=reader.locate(1)[0]
        )


def _reader(inputs: Source, block_size: int, on_progress: Progress | None) -> BlockReader:
    file: Any = inputs
    if isinstance(inputs, bytes):
        file = io.BytesIO(inputs)
    elif isinstance(inputs, str) and not {"\n", "\t"}.isdisjoint(inputs):
        file = io.StringIO(inputs)
    if hasattr(file, "read"):
        name = getattr(file, "name", TEXT)
        if isinstance(file, io.TextIOBase):
            text = file
            # half characters are refused as no UTF-8 then
            file = SimpleNamespace(
                read=lambda size: text.read(size).encode("utf-8", "surrogatepass")
            )
        # the name of a descriptor is a number
        return read_open_file(file, name if isinstance(name, str) else TEXT, block_size=block_size)
    return read_blocks(file, treebanks=True, block_size=block_size, on_progress=on_progress)


def _stretches(reader: BlockReader) -> Iterator[tuple[str, int, bytes]]:
    """Join blocks to stretches of whole sentences: (file, first line, text)."""
    path, line = "", 1
    pending: list[bytes] = []
    for block in reader:
        block_path, block_line = reader.locate(1)
        if block_line == 1:  # a new file
            if pending:
                yield path, line, b"".join(pending)
            path, line, pending = block_path, 1, []
        end = block.rfind(b"\n\n")
        cut = end + 2 if end >= 0 else 0
        if cut:
            stretch = b"".join((*pending, block[:cut]))
            yield path, line, stretch
            line += stretch.count(b"\n")
            pending = []
        pending.append(block[cut:])
        if sum(map(len, pending)) > longest_line():  # it would fill the memory
            raise DataError(
                f"no blank line in {longest_line():,} bytes",
                hint="end each sentence with a blank line, or raise --max-line MB",
                path=path,
                line=line,
            )
    if pending:
        yield path, line, b"".join(pending)


def held_out(items: Iterable[Member]) -> Iterator[tuple[Member, bool]]:
    """Yield each item, and whether it is held out for validation: items 10, 20 and so on are.

    Segmenter, tagger and parser alike hold these out where no validation part is given, so that
    all parts of a pipeline are scored on sentences that none of them was trained on.
    """
    for number, item in enumerate(items, start=1):
        yield item, number % HELD_OUT_EVERY == 0


def describe_held_out(num_train: int, num_dev: int) -> str:
    """Return one line on the sentences held out; where they are too few, dev is all of train."""
    if num_dev == num_train:
        return (
            f"the treebank has fewer than {HELD_OUT_EVERY} sentences, so none is held out: dev is "
            "train, and dev scores say nothing of other text; give --dev"
        )
    num = num_train + num_dev
    shown = f"every tenth sentence is held out as dev: {num_dev:,} of {num:,}"
    return shown + ("; its scores mean little" if num_dev == 1 else "") + "; give --dev for another"
