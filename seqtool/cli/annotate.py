"""`seqtool segment`, `seqtool tag` and `seqtool parse`: sentences that get what they lack."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from seqtool.cli.corpora import Run
from seqtool.cli.labels import LabelColumnOption, WordColumnOption, label, refuse_columns
from seqtool.cli.models import (
    default_model,
    hinting_allow_missing,
    note_beam,
    one_model,
    open_model,
)
from seqtool.cli.options import UNNAMED, JobsOption, note, stdin_or_sample, takes_options
from seqtool.cli.spark import SparkOptions
from seqtool.cli.trees import FORMATS, DetailOptions
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, ModelError, counted, did_you_mean

if TYPE_CHECKING:
    from seqtool.parsing.segmenter.documents import Layout
    from seqtool.treebank.conllu import Broken
    from seqtool.treebank.sentence import Sentence

TEXT_FORMATS = ("conllu", "text", "lines")
INPUTS = ("text", "conllu", "horizontal", "vertical")

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="CoNLL-U (HEAD and DEPREL may be anything) or plain text, see --raw; files (also "
        f"packed), directories, or - for stdin. {UNNAMED} the shipped sample's English test trees.",
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
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write; - is stdout. A directory (out/) gets a file for each input.",
    ),
]
InvalidOption = Annotated[
    str | None,  # no path: of a URL, as --engine spark takes it, it would lose a slash
    typer.Option(
        metavar="FILE",
        help="Write broken sentences to this file, with file, line and reason, and not to the "
        "output. Implies --skip-invalid. With --engine spark it is a directory, of any kind that "
        "-o can be.",
    ),
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

    @property
    def layout(self) -> Layout:
        """What they say."""
        from seqtool.parsing.segmenter.documents import Layout

        return Layout(self.rules, self.presegmented, self.pretokenized)


@dataclass(frozen=True)
class RawTextOptions(LayoutOptions):
    """Whether there is plain text in place of CoNLL-U, and how it is laid out or split."""

    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="FILE is plain text, as files named .txt are without this option."
        ),
    ] = False
    named: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="|".join(INPUTS),
            help="What FILE is: plain text (as --raw), CoNLL-U, a sentence a line with spaces "
            "between all words, or a word a line with an empty line between sentences.",
        ),
    ] = None

    @property
    def layout(self) -> Layout:
        """What they say."""
        from seqtool.treebank.layouts import LAYOUTS

        return replace(super().layout, words=LAYOUTS.get(self.named or ""))

    @property
    def is_given(self) -> bool:
        """Whether any says what files are."""
        return any(vars(self).values())

    def are_for(self, files: Sequence[str]) -> bool:
        """Whether files hold no CoNLL-U: an option says so, or all their names do.

        Raises:
            ConfigError: options that do not go together.
        """
        from seqtool.parsing.segmenter.documents import are_texts

        others = [name for name, value in vars(self).items() if value and name != "named"]
        if self.named is None:
            texts = [name for name in files if are_texts([name])]
            if texts and len(texts) < len(files) and not others:
                raise ConfigError(
                    f"{texts[0]} is plain text by its name, and others are not",
                    hint="give texts and treebanks in two commands, or say what all are: --input",
                )
            return bool(others) or bool(texts)
        if self.named not in INPUTS:
            hint = did_you_mean(self.named, INPUTS)
            raise ConfigError(f"no input is called {self.named!r}", hint=hint)
        if others and self.named != "text":
            what = f"--input {self.named} and --{others[0]} do not go together"
            raise ConfigError(what, hint="leave out one of the two")
        return self.named != "conllu"


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
            help="Files of plain text (also packed), directories, or - for stdin; each is a "
            f"document. {UNNAMED} the shipped sample's English test text.",
        ),
    ] = None,
    models: Annotated[
        list[Path] | None, _model("A segmenter; runs/segmenter if not given.")
    ] = None,
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
    jobs: JobsOption = 1,
    *,
    layout: LayoutOptions,
    spark: SparkOptions,
) -> None:
    """Split raw text into sentences and words, as CoNLL-U or as lines of text.

    Paragraphs end with an empty line. Words and the spaces in MISC (SpaceAfter, SpacesAfter)
    rebuild the text exactly. Memory does not grow with it, and the output comes in order.
    """
    from seqtool.parsing.annotation import Annotation

    is_spark = spark.is_spark()
    _check_format(format_, (*TEXT_FORMATS, "parquet") if is_spark else TEXT_FORMATS)
    segmenter = path = None
    model = one_model(models)
    if not (layout.rules or layout.pretokenized):
        path = model or default_model("segmenter", otherwise="split by rules: --rules")
        segmenter = open_model(path, "segmenter")
    elif model is not None:
        option = "--rules" if layout.rules else "--pretokenized"
        raise ConfigError(f"{option} needs no model", hint="leave out one of the two")
    paths = [path] if path else []
    if is_spark:
        form = "conllu" if format_ == "parquet" else format_
        annotation = Annotation("segment", layout.layout, cast(Any, form))
        given_format = format_ if format_ != "conllu" else None
        spark.annotate(
            annotation, files, paths, output, format_=given_format, invalid=None, jobs=jobs > 1
        )
        return
    given = files or [stdin_or_sample("FILE")]
    annotation = Annotation("segment", layout.layout, cast(Any, format_))
    Run(annotation, given, segmenter, paths).write(output, jobs=jobs)


def _check_format(name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigError(f"no format is called {name!r}", hint=did_you_mean(name, known))


@takes_options()
@examples(
    "seqtool tag text.conllu -m runs/tagger -o tagged.conllu",
    "seqtool tag letter.txt -m runs/mine",
    "seqtool tag text.conllu -m runs/names --retag",
)
def tag(
    files: FilesArgument = None,
    models: Annotated[
        list[Path] | None,
        _model(
            "A tagger, or what train-parser --raw made; runs/tagger or runs/parser if not given."
        ),
    ] = None,
    output: TargetOption = "-",
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also what the columns hold already.")
    ] = False,
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid",
            help="Write broken sentences as they are, and leave out files that cannot be read.",
        ),
    ] = False,
    invalid: InvalidOption = None,
    embeddings: MoreWordsOption = None,
    word_column: WordColumnOption = None,
    label_column: LabelColumnOption = None,
    jobs: JobsOption = 1,
    *,
    text: RawTextOptions,
    spark: SparkOptions,
) -> None:
    """Give words UPOS, XPOS, FEATS and lemmas.

    What a file has already is kept, and what is predicted agrees with it: a UPOS or lemma that is
    `_` is predicted, and XPOS or FEATS where no word of the sentence has any. All other columns,
    comments, multiword tokens and empty nodes come back as they were, in bounded memory. A model
    of `train-tagger --column` gives labels, into MISC or the column of labels of a file with a word
    a line; where there are labels already, --retag says how good its own are.
    """
    from seqtool.parsing.annotation import Annotation, with_words

    is_spark = spark.is_spark()
    given = files or ([] if is_spark else [stdin_or_sample("FILE", "trees")])
    path = one_model(models) or default_model("tagger", "parser")
    tagger = with_words(open_model(path, "tagger"), embeddings, path)
    if is_spark or tagger.kind != "labeller":
        refuse_columns(word_column, label_column)
    annotation = Annotation(
        "tag",
        text.layout if text.are_for(given) else None,
        options={"retag": retag},
        skip_invalid=skip_invalid or invalid is not None,
        keeps_invalid=invalid is None,
    )
    if is_spark:
        spark.annotate(
            annotation,
            files,
            [path],
            output,
            format_=None,
            invalid=invalid,
            jobs=jobs > 1,
            embeddings=embeddings,
        )
        return
    run = Run(annotation, given, tagger, [path], embeddings)
    if tagger.kind == "labeller":
        return label(
            run,
            tagger,
            [] if text.is_given else given,
            output,
            columns=(word_column, label_column),
            retag=retag,
            jobs=jobs,
            invalid=invalid,
        )
    seen = run.write(output, jobs=jobs, invalid=invalid)
    if seen.is_tagged and seen.num_words and not retag and annotation.layout is None:
        # the file that is written is the one that was read: rarely what was wanted of a tagger
        note("all words had UPOS and a lemma already, which are kept; --retag predicts all anew")


@takes_options()
@examples(
    "seqtool parse text.conllu -m runs/parser -o parsed.conllu",
    "seqtool parse letter.txt -m runs/mine --format tree",
    'echo "I love it." | seqtool parse --raw -m runs/mine',
    "seqtool parse text.conllu -m runs/parser -m runs/other",
    "seqtool parse text.conllu -m runs/parser --trace --format html -o steps.html",
)
def parse(
    files: FilesArgument = None,
    model: Annotated[
        list[Path] | None,
        _model(
            "A parser; runs/parser if not given. Several of one treebank (-m A -m B) vote on each "
            "arc, or are averaged where they differ in the seed alone; a model of --raw among them "
            "splits and tags text for all."
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
            "--skip-invalid",
            help="Write broken sentences as they are, but leave them out of drawings, and leave "
            "out files that cannot be read.",
        ),
    ] = False,
    invalid: InvalidOption = None,
    allow_missing: AllowMissingOption = False,
    clear_deps: Annotated[
        bool,
        typer.Option("--clear-deps", help="Leave out the enhanced graph, which is not parsed."),
    ] = False,
    embeddings: MoreWordsOption = None,
    jobs: JobsOption = 1,
    *,
    text: RawTextOptions,
    details: DetailOptions,
    spark: SparkOptions,
) -> None:
    """Parse sentences, or plain text.

    Of CoNLL-U only HEAD and DEPREL are written anew, and by a model of `train-parser --raw` the
    tags and lemmas that are `_`: comments, multiword tokens, empty nodes and all other columns come
    back as they were. Plain text needs such a model. Memory is bounded however long the input is.
    """
    from seqtool.parsing.annotation import Annotation, with_words

    is_spark, asked = spark.is_spark(), format_
    format_ = "conllu" if is_spark else details.format_of(format_, output)
    details.check(gold)
    given = files or ([] if is_spark else [stdin_or_sample("FILE", "trees")])
    if details.trace and jobs > 1:
        raise ConfigError("--trace and --jobs do not go together", hint="leave --jobs out")
    _check_options(format_, given, gold or [], clear_deps=clear_deps, jobs=jobs)
    paths = model or [default_model("parser")]
    path = paths[0]
    parser = with_words(open_model(paths, "parser"), embeddings, path)
    if parser.has_tagger:
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
    options["beam"] = beam
    note_beam(parser, beam, paths)
    if details.trace and parser.votes and parser.has_tagger and len(paths) == 1:
        note(
            f"{path}: its parsers vote, and a vote has no steps: these are of the parser in "
            f"{path / 'parser'} alone, whose tree may be another than the vote's"
        )
    if details.scores:
        options["scores"] = True
        if not parser.is_calibrated:
            note(
                "the vote of these parsers has no calibration, as one of train-parser --raw has: "
                "probabilities are the mean of the parsers'"
                if parser.votes
                else "the parser has no calibration: probabilities are those that it works with"
            )
    annotation = Annotation(
        "parse",
        text.layout if text.are_for(given) else None,
        options=options,
        nbest=details.nbest,
        clear_deps=clear_deps,
        skip_invalid=skip_invalid or invalid is not None,
        keeps_invalid=invalid is None,
    )
    if is_spark:
        with hinting_allow_missing():
            spark.annotate(
                annotation,
                files,
                paths,
                output,
                format_=asked,
                invalid=invalid,
                jobs=jobs > 1,
                embeddings=embeddings,
                trace=details.trace,
            )
        return
    run = Run(annotation, given, parser, paths, embeddings)
    if format_ == "conllu":
        with hinting_allow_missing():
            seen = run.write(output, jobs=jobs, invalid=invalid)
    else:
        if gold and annotation.layout is not None:
            hint = "score text with seqtool eval-parser"
            raise ConfigError("--gold is for CoNLL-U", hint=hint)
        beside = _BesideGold(given, gold) if gold else None
        with (
            hinting_allow_missing(),
            run.reading(
                output, invalid, fate="left out", source=beside.sentences if beside else None
            ) as items,
        ):
            trees = beside.trees() if beside else None
            details.write(parser, items, format_, output, gold=trees, **options)
        seen = run.seen
    if seen.num_long:
        note(
            f"{counted(seen.num_long, 'sentence')} of more than {parser.longest:,} words: too long "
            "to look for the best tree as in others; the tree may be worse"
        )


def _check_options(
    format_: str, files: list[str], gold: list[str], *, clear_deps: bool, jobs: int
) -> None:
    """Refuse options that do not go together."""
    if jobs > 1 and format_ != "conllu":
        hint = "leave --jobs out, or --format conllu; `seqtool draw` draws what was parsed"
        raise ConfigError("--jobs is for CoNLL-U", hint=hint)
    if clear_deps and format_ != "conllu":
        raise ConfigError("--clear-deps is for CoNLL-U", hint="leave it out, or --format conllu")
    if gold and format_ == "conllu":
        raise ConfigError(
            "--gold is for drawings",
            hint="add --format tree, svg, html or json; for scores, seqtool eval-parser GOLD",
        )
    if gold != files and [*files, *gold].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")


class _BesideGold:
    """Sentences of files, and the gold trees of those that are whole.

    A gold tree can be taken once its sentence was; memory holds those in between. Where one of the
    two is broken, that one is among the sentences, and there is no gold tree.

    Args:
        given: the files of sentences.
        gold: the files of gold trees. Where they are the same, each is read once, as stdin can be.
    """

    def __init__(self, given: Sequence[str], gold: Sequence[str]) -> None:
        self._given, self._gold = given, gold
        self._waiting: deque[Sentence] = deque()

    def sentences(self, files: Sequence[str]) -> Iterator[Sentence | Broken]:
        """Give the sentences of files, which are those given but for some that are left out.

        Raises:
            ConfigError: when iterated: some are, and nothing tells where their gold trees are.
        """
        from seqtool.treebank.conllu import Broken, read_items
        from seqtool.treebank.sentence import Sentence

        if self._given == self._gold:
            for item in read_items(files, check="tree"):
                if not isinstance(item, Broken):
                    # a copy keeps its tree when that of the other is written anew
                    rows = [list(row) for row in item.rows]
                    copy = Sentence(item.comments, rows, item.extras, item.path, item.line)
                    self._waiting.append(copy)
                yield item
            return
        for item, tree in zip_longest(
            read_items(files, check="columns"), read_items(self._gold_of(files), check="tree")
        ):
            if isinstance(item, Broken) or isinstance(tree, Broken):
                yield item if isinstance(item, Broken) else tree
                continue
            if tree is not None:
                self._waiting.append(tree)
            if item is not None:
                yield item

    def _gold_of(self, files: Sequence[str]) -> Sequence[str]:
        """Return the files of gold trees of these files, without those of files left out."""
        if files == self._given:
            return self._gold
        from seqtool.core.reading import find_files

        given, gold = (find_files(names, treebanks=True) for names in (self._given, self._gold))
        if len(files) in (len(given), len(gold)):
            return gold
        if len(gold) != len(given):
            raise ConfigError(
                "files are left out, and nothing tells which gold trees are theirs",
                hint="name a file of gold trees for each file, in the same order",
            )
        left = iter(zip(given, gold, strict=True))
        # files left out are those in between
        return [next(tree for name, tree in left if name == file) for file in files]

    def trees(self) -> Iterator[Sentence]:
        """Give the gold trees of sentences that were taken."""
        while self._waiting:
            yield self._waiting.popleft()
