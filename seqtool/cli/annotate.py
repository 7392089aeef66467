"""`seqtool segment`, `seqtool tag` and `seqtool parse`: sentences that get what they lack."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from seqtool.cli.models import default_model, open_model
from seqtool.cli.options import MAX_SHOWN, UNNAMED, note, stdin_or_sample, takes_options
from seqtool.cli.trees import FORMATS, DetailOptions
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError, ModelError, counted, did_you_mean

if TYPE_CHECKING:
    from seqtool.treebank.conllu import Broken, Item
    from seqtool.treebank.sentence import Sentence

    Items = Iterator[Item]

Other = TypeVar("Other")

TEXT_FORMATS = ("conllu", "text", "lines")
INPUTS = ("text", "conllu", "horizontal", "vertical")

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="CoNLL-U (HEAD and DEPREL may be anything) or plain text, see --raw; files (also "
        f".gz, .zst), directories, or - for stdin. {UNNAMED} the shipped sample's English test "
        "trees.",
    ),
]
AllowMissingOption = Annotated[
    bool,
    typer.Option(
        "--allow-missing",
        help="Parse also sentences without tags or other columns that the parser reads.",
    ),
]
MoreWordsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file of word vectors that the model was trained with: also words beyond the "
        "first 100,000, which the model has not kept, get theirs.",
    ),
]
TargetOption = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")
]


def _model(help: str) -> Any:
    return typer.Option("--model", "-m", metavar="DIR", help=help)


@dataclass(frozen=True)
class LayoutOptions:
    """How plain text is split."""

    rules: Annotated[
        bool,
        typer.Option("--rules", help="Split text by simple rules, not by the model; any language."),
    ] = False
    presegmented: Annotated[
        bool, typer.Option("--presegmented", help="The text has a sentence a line.")
    ] = False
    pretokenized: Annotated[
        bool,
        typer.Option(
            "--pretokenized", help="The text has a sentence a line, and spaces between all words."
        ),
    ] = False

    def read(self, files: Sequence[str], model: Any, path: Path | None) -> Iterator[Sentence]:
        """Return the sentences of plain text, split as the options say, or by a model.

        Raises:
            ConfigError: options that do not go together.
            ModelError: the model cannot segment.
        """
        from seqtool.parsing.segmenter.documents import segment_texts

        layout = {item.name: getattr(self, item.name) for item in fields(LayoutOptions)}
        return segment_texts(files, model, path, **layout)


@dataclass(frozen=True)
class RawTextOptions(LayoutOptions):
    """Whether there is plain text in place of CoNLL-U, and how it is laid out or split."""

    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="FILE is plain text, as files named .txt are without this option."
        ),
    ] = False
    layout: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="|".join(INPUTS),
            help="What FILE is: plain text (as --raw), CoNLL-U, a sentence a line with spaces "
            "between all words, or a word a line with an empty line between sentences.",
        ),
    ] = None

    def are_for(self, files: Sequence[str]) -> bool:
        """Whether files hold no CoNLL-U: an option says so, or all their names do.

        Raises:
            ConfigError: options that do not go together.
        """
        from seqtool.parsing.segmenter.documents import are_texts

        named = [name for name, value in vars(self).items() if value and name != "layout"]
        if self.layout is None:
            return bool(named) or are_texts(files)
        if self.layout not in INPUTS:
            hint = did_you_mean(self.layout, INPUTS)
            raise ConfigError(f"no input is called {self.layout!r}", hint=hint)
        if named and self.layout != "text":
            what = f"--input {self.layout} and --{named[0]} do not go together"
            raise ConfigError(what, hint="leave out one of the two")
        return self.layout != "conllu"

    def read(self, files: Sequence[str], model: Any, path: Path | None) -> Iterator[Sentence]:
        """Return the sentences of what is no CoNLL-U; see `LayoutOptions.read`."""
        from seqtool.treebank.layouts import LAYOUTS, read_layout_files

        if self.layout is not None and self.layout in LAYOUTS:
            return read_layout_files(files, LAYOUTS[self.layout])
        return super().read(files, model, path)


@takes_options()
@examples(
    "seqtool segment letter.txt -m runs/segmenter",
    "seqtool segment letter.txt --rules --format text > sentences.txt",
    "cat letter.txt | seqtool segment -m runs/mine -o letter.conllu",
)
def segment(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Files of plain text (also .gz, .zst), directories, or - for stdin; each is a "
            f"document. {UNNAMED} the shipped sample's English test text.",
        ),
    ] = None,
    model: Annotated[Path | None, _model("A segmenter; runs/segmenter if not given.")] = None,
    output: TargetOption = "-",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(TEXT_FORMATS),
            help="conllu; text: a sentence a line, blanks between its tokens, as language models "
            "read it; lines: a sentence a line, as it is written.",
        ),
    ] = "conllu",
    *,
    layout: LayoutOptions,
) -> None:
    """Split raw text into sentences and words, as CoNLL-U or as lines of text.

    Paragraphs end with an empty line. Words and the spaces in MISC (SpaceAfter, SpacesAfter)
    rebuild the text exactly. Memory does not grow with it, and the output comes in order.
    """
    from seqtool.treebank.conllu import write_conllu, write_pieces

    _check_format(format_, TEXT_FORMATS)
    segmenter = None
    if not (layout.rules or layout.pretokenized):
        segmenter = open_model(model or default_model("segmenter"), "segmenter")
    elif model is not None:
        option = "--rules" if layout.rules else "--pretokenized"
        raise ConfigError(f"{option} needs no model", hint="leave out one of the two")
    sentences = layout.read(files or [stdin_or_sample("FILE")], segmenter, model)
    if format_ == "conllu":
        write_conllu(sentences, output)
    else:
        line_of = _tokens_line if format_ == "text" else _written_line
        write_pieces((f"{line_of(sentence)}\n".encode() for sentence in sentences), output)


def _check_format(name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigError(f"no format is called {name!r}", hint=did_you_mean(name, known))


def _tokens_line(sentence: Sentence) -> str:
    """Return the tokens of a sentence, as they are written, with blanks between them."""
    from seqtool.treebank.sentence import FORM

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


@takes_options()
@examples(
    "seqtool tag text.conllu -m runs/tagger -o tagged.conllu",
    "seqtool tag letter.txt -m runs/mine",
)
def tag(
    files: FilesArgument = None,
    model: Annotated[
        Path | None,
        _model(
            "A tagger, or what train-parser --raw made; runs/tagger or runs/parser if not given."
        ),
    ] = None,
    output: TargetOption = "-",
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also what the columns hold already.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Write broken sentences as they are.")
    ] = False,
    embeddings: MoreWordsOption = None,
    *,
    text: RawTextOptions,
) -> None:
    """Give words UPOS, XPOS, FEATS and lemmas.

    What a file has already is kept, and what is predicted agrees with it: a UPOS or lemma that is
    `_` is predicted, and XPOS or FEATS where no word of the sentence has any. All other columns,
    comments, multiword tokens and empty nodes come back as they were, in bounded memory.
    """
    from seqtool.treebank.conllu import read_items, write_conllu

    given = files or [stdin_or_sample("FILE", "trees")]
    path = model or default_model("tagger", "parser")
    tagger = _with_words(open_model(path, "tagger"), embeddings, path)
    if text.are_for(given):
        items: Items = text.read(given, tagger, path)
    else:
        items = read_items(given, check="columns")
        items = _noted(items, "passed through") if skip_invalid else _refusing(items, tagger)
        items = items if retag else _noting_tags(items)
    write_conllu(tagger.tag_stream(items, retag=retag), output)


@takes_options()
@examples(
    "seqtool parse text.conllu -m runs/parser -o parsed.conllu",
    "seqtool parse letter.txt -m runs/mine --format tree",
    'echo "I love it." | seqtool parse --raw -m runs/mine',
    "seqtool parse words.txt --input vertical -m runs/mine",
    "seqtool parse text.conllu -m runs/parser -m runs/other",
    "seqtool parse text.conllu -m runs/parser --trace --format html -o steps.html",
)
def parse(
    files: FilesArgument = None,
    model: Annotated[
        list[Path] | None,
        _model(
            "A parser; runs/parser if not given. Several over one treebank (-m A -m B) vote on "
            "each arc; a model of --raw among them splits and tags text for all."
        ),
    ] = None,
    output: TargetOption = "-",
    beam: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Hypotheses per sentence: 4 is better and slower than 1."
        ),
    ] = 1,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="|".join(FORMATS),
            help="What to write; if not given, what the name after -o ends in, else conllu; tree "
            "with --trace.",
        ),
    ] = None,
    gold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Mark wrong arcs in drawings by the trees of this CoNLL-U file, which may be FILE "
            "itself; repeatable.",
        ),
    ] = None,
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also the tags and lemmas that the file has.")
    ] = False,
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid", help="Write broken sentences as they are; leave them out of drawings."
        ),
    ] = False,
    allow_missing: AllowMissingOption = False,
    clear_deps: Annotated[
        bool,
        typer.Option("--clear-deps", help="Leave out the enhanced graph, which is not parsed."),
    ] = False,
    embeddings: MoreWordsOption = None,
    *,
    text: RawTextOptions,
    details: DetailOptions,
) -> None:
    """Parse sentences, or plain text.

    Of CoNLL-U only HEAD and DEPREL are written anew, and by a model of `train-parser --raw` the
    tags and lemmas that are `_`: comments, multiword tokens, empty nodes and all other columns come
    back as they were. Plain text needs such a model. Memory is bounded however long the input is.
    """
    from seqtool.treebank.conllu import read_batches

    format_ = details.format_of(format_, output)
    details.check(gold)
    given = files or [stdin_or_sample("FILE", "trees")]
    _check_options(format_, given, gold or [], clear_deps=clear_deps)
    paths = model or [default_model("parser")]
    path = paths[0]
    parser = _with_words(open_model(paths, "parser"), embeddings, path)
    if hasattr(parser, "tag_stream"):
        options: dict[str, Any] = {"retag": retag}
        if allow_missing:
            raise ModelError(
                "tags words that have no tags, so there is nothing to allow",
                hint="leave --allow-missing out",
                path=path,
            )
    else:
        options = {"allow_missing": allow_missing}
        if retag:
            raise ModelError(
                "has no tagger, so there is no --retag",
                hint="train one with `seqtool train-parser --raw`, or tag with `seqtool tag`",
                path=path,
            )
    gold_trees = None
    if text.are_for(given):
        items: Items = text.read(given, parser, path)
        if gold:
            raise ConfigError("--gold is for CoNLL-U", hint="score text with seqtool eval-parser")
    elif gold:
        items, gold_trees = _read_beside_gold(given, gold)
    else:
        items = read_batches(given, skip_invalid=True)
    if not skip_invalid:
        items = _refusing(items, parser)
    if (longest := parser.longest) is not None:
        items = _noting_long(items, longest)
    items = _noted(items, "passed through" if format_ == "conllu" else "left out")
    details.write(
        *(parser, items, format_, output),
        gold=gold_trees,
        clear_deps=clear_deps,
        beam=beam,
        **options,
    )


def _with_words(model: Any, embeddings: Path | None, path: Path) -> Any:
    """Return a model with the words of a file of vectors that it lacks, if one is given."""
    if embeddings is None:
        return model
    from seqtool.parsing.encoding.pretrained import MAX_ADDED, read_rows

    try:
        return model.with_words(read_rows(embeddings, MAX_ADDED))
    except ModelError as error:  # which does not know where it is
        raise ModelError(error.message, hint=error.hint, path=error.path or path) from error


def _check_options(format_: str, files: list[str], gold: list[str], *, clear_deps: bool) -> None:
    """Refuse options that do not go together."""
    if clear_deps and format_ != "conllu":
        raise ConfigError("--clear-deps is for CoNLL-U", hint="leave it out, or --format conllu")
    if gold and format_ == "conllu":
        raise ConfigError(
            "--gold is for drawings",
            hint="add --format tree, svg, html or json; for scores, seqtool eval-parser GOLD",
        )
    if gold != files and [*files, *gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")


def _refusing(items: Iterable[Other | Broken], model: Any) -> Iterator[Other]:
    """Pass whole sentences on, and refuse a broken one; plain text gets a hint of its own.

    Raises:
        DataError: when iterated: a sentence is broken.
    """
    from seqtool.treebank.conllu import Broken, refused
    from seqtool.treebank.sentence import NUM_COLUMNS

    for item in items:
        if not isinstance(item, Broken):
            yield item
            continue
        lines = [line for line in item.text.split("\n") if not line.startswith("#")]
        # of columns that are apart by spaces, the error says so
        is_table = all("\t" in line or len(line.split()) == NUM_COLUMNS for line in lines)
        if is_table or "\t" in item.text:
            raise refused(item)
        who = "" if hasattr(model, "segment") else ", by a model of `seqtool train-parser --raw`"
        raise DataError(
            "no CoNLL-U: the lines have no columns",
            hint=f"if it is plain text, add --raw to read it{who}",
            path=item.error.path,
            line=item.error.line,
        )


def _noting_tags(items: Iterable[Other]) -> Iterator[Other]:
    """Pass items on, and say at the end if all words had UPOS and a lemma before they were tagged.

    Then the file that is written is the one that was read: rarely what was wanted of a tagger.
    """
    from seqtool.treebank.sentence import LEMMA, UPOS, Sentence

    num_words = 0
    is_tagged = True
    for item in items:
        if is_tagged and isinstance(item, Sentence):
            num_words += len(item)
            is_tagged = all("_" not in (row[UPOS], row[LEMMA]) for row in item.rows)
        yield item
    if is_tagged and num_words:
        note("all words had tags and lemmas already, which are kept; --retag predicts them anew")


def _noting_long(items: Iterable[Other], longest: int) -> Iterator[Other]:
    """Pass items on, and say at the end how many sentences are too long for their best tree."""
    from seqtool.treebank.conllu import SentenceBatch
    from seqtool.treebank.sentence import Sentence

    num_long = 0
    for item in items:
        if isinstance(item, SentenceBatch):
            num_long += int((item.lengths > longest).sum())
        elif isinstance(item, Sentence):
            num_long += len(item) > longest
        yield item
    if num_long:
        note(
            f"{counted(num_long, 'sentence')} of more than {longest:,} words: too long to look for "
            "the best tree as in others; the tree may be worse"
        )


def _noted(items: Iterator[Other | Broken], fate: str) -> Iterator[Other | Broken]:
    """Pass items on, and say which sentences are broken and what becomes of them."""
    from seqtool.treebank.conllu import Broken

    num_broken = 0
    for item in items:
        if isinstance(item, Broken):
            num_broken += 1
            if num_broken <= MAX_SHOWN:
                note(f"{fate}: {item.error}")
        yield item
    if num_broken > MAX_SHOWN:
        note(f"{counted(num_broken, 'broken sentence')} {fate} in all")


def _read_beside_gold(
    files: Sequence[str], gold: Sequence[str]
) -> tuple[Iterator[Sentence | Broken], Iterator[Sentence]]:
    """Return the sentences of files, and the gold trees of those that are whole.

    A gold tree can be taken once its sentence was; memory holds those in between. Where one of the
    two is broken, that one is among the sentences, and there is no gold tree.
    """
    from seqtool.treebank.conllu import Broken, read_items
    from seqtool.treebank.sentence import Sentence

    waiting: deque[Sentence] = deque()

    def sentences() -> Iterator[Sentence | Broken]:
        if gold == files:  # which may be stdin, and cannot be read twice
            for item in read_items(files, check="tree"):
                if not isinstance(item, Broken):
                    # a copy keeps its tree when that of the other is written anew
                    rows = [list(row) for row in item.rows]
                    waiting.append(Sentence(item.comments, rows, item.extras, item.path, item.line))
                yield item
            return
        for item, tree in zip_longest(
            read_items(files, check="columns"),
            read_items(gold, check="tree"),
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
