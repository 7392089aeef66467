"""`seqtool segment`, `seqtool tag` and `seqtool parse`: sentences that get what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.corpora import BrokenOptions, Corpus, OutputOptions
from seqtool.cli.draw import DRAWINGS, FORMATS, TreeOptions, check_name
from seqtool.cli.labels import ColumnOptions, note_columns, note_labels
from seqtool.cli.models import (
    default_model,
    note_beam,
    one_model,
    open_model,
)
from seqtool.cli.options import argument, note, option, stdin_or_sample
from seqtool.cli.spark import SparkOptions
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, ModelError, counted

if TYPE_CHECKING:
    from seqtool.parsing.annotation import Part
    from seqtool.parsing.segmenter.documents import TextLayout

TEXT_FORMATS = ("conllu", "text", "lines")
INPUTS = ("text", "conllu", "horizontal", "vertical")

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="CoNLL-U, or text (--raw); else the sample."),
]
AllowMissingOption = Annotated[
    bool, typer.Option("--allow-missing", help="Parse sentences without tags, too.")
]
RetagOption = Annotated[
    bool, typer.Option("--retag", help="Predict also the tags or labels that FILE has.")
]


@dataclass(frozen=True)
class LayoutOptions:
    """How plain text is split."""

    rules: bool = option(False, "Split text by simple rules, not by the model; any language.")
    presegmented: bool = option(False, "The text has a sentence a line.")
    pretokenized: bool = option(
        False, "The text has a sentence a line, and spaces between all words."
    )

    @property
    def layout(self) -> TextLayout:
        """What they say."""
        from seqtool.parsing.segmenter.documents import TextLayout

        return TextLayout(self.rules, self.presegmented, self.pretokenized)


@dataclass(frozen=True)
class RawTextOptions(LayoutOptions):
    """Whether there is plain text in place of CoNLL-U, and how it is laid out or split."""

    raw: bool = option(False, "FILE is plain text, as files named .txt are without this option.")
    named: str | None = option(
        None,
        "What FILE is; horizontal and vertical: words between blanks or lines.",
        "|".join(INPUTS),
        "--input",
    )

    @property
    def layout(self) -> TextLayout:
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
        from seqtool.core.reading import is_text

        others = [name for name, value in vars(self).items() if value and name != "named"]
        if self.named is None:
            texts = list(filter(is_text, files))
            if texts and len(texts) < len(files) and not others:
                raise ConfigError(
                    f"{texts[0]} is plain text by its name, and others are not",
                    hint="give texts and treebanks in two commands, or say what all are: --input",
                )
            return bool(others or texts)
        if check_name("input", self.named, INPUTS) != "text" and others:
            what = f"--input {self.named} and --{others[0]} do not go together"
            raise ConfigError(what, hint="leave out one of the two")
        return self.named != "conllu"


def _inputs(files: list[str] | None, spark: SparkOptions, kind: Any = "text") -> list[str]:
    """Return what is read: of Spark, which has neither stdin nor the sample, what is named."""
    return files or ([] if spark.is_spark() else [stdin_or_sample("FILE", kind)])


@examples(
    "seqtool segment letter.txt -m runs/segmenter",
    "seqtool segment letter.txt --rules --format text > sentences.txt",
    "cat letter.txt | seqtool segment -m runs/mine -o letter.conllu",
)
def segment(
    files: list[str] | None = argument(
        None, "Plain text, a document a file; the sample's English if not given.", "FILE"
    ),
    models: list[Path] | None = option(
        None, "A segmenter; runs/segmenter if not given.", "DIR", "--model", "-m"
    ),
    format_: str = option(
        "conllu",
        "conllu, or a sentence a line: text with blanks between tokens, lines as it is.",
        "|".join(TEXT_FORMATS),
        "-f",
    ),
    *,
    out: OutputOptions,
    layout: LayoutOptions,
    spark: SparkOptions,
) -> None:
    """Split raw text into sentences and words, as CoNLL-U or as lines of text.

    Paragraphs end with an empty line. Words and the spaces in MISC (SpaceAfter, SpacesAfter)
    rebuild the text exactly. Memory does not grow with it, and the output comes in order.
    """
    from seqtool.parsing.annotation import Annotation

    known = (*TEXT_FORMATS, "parquet") if spark.is_spark() else TEXT_FORMATS
    check_name("format", format_, known)
    segmenter = path = None
    model = one_model(models)
    if not (layout.rules or layout.pretokenized):
        path = model or default_model("segmenter", otherwise="split by rules: --rules")
        segmenter = open_model(path, "segmenter")
    elif model is not None:
        option = "--rules" if layout.rules else "--pretokenized"
        raise ConfigError(f"{option} needs no model", hint="leave out one of the two")
    form: Any = format_ if format_ in TEXT_FORMATS else "conllu"
    annotation = Annotation("segment", layout.layout, form)
    corpus = Corpus(annotation, _inputs(files, spark), segmenter, [path] if path else [])
    corpus.write(out, spark=spark, format_=None if format_ == "conllu" else format_)


@examples(
    "seqtool tag text.conllu -m runs/tagger -o tagged.conllu",
    "seqtool tag letter.txt -m runs/mine",
    "seqtool tag text.conllu -m runs/names --retag",
)
def tag(
    files: FilesArgument = None,
    models: list[Path] | None = option(
        None,
        "A tagger, or a model of --raw; runs/tagger or runs/parser if not given.",
        "DIR",
        "--model",
        "-m",
    ),
    retag: RetagOption = False,
    *,
    out: OutputOptions,
    broken: BrokenOptions,
    columns: ColumnOptions,
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
    from seqtool.parsing.annotation import Annotation

    given = _inputs(files, spark, "trees")
    path = one_model(models) or default_model("tagger", "parser")
    tagger = open_model(path, "tagger")
    annotation = Annotation(
        "tag",
        text.layout if text.are_for(given) else None,
        options={"retag": retag},
        **broken.of_annotation,
    )
    corpus = Corpus(annotation, given, tagger, [path])
    if tagger.kind == "labeller" and not spark.is_spark():
        return _label(corpus, [] if text.is_given else given, columns, out, broken.invalid)
    columns.refuse()
    seen = corpus.write(out, broken.invalid, spark=spark)
    if seen.is_tagged and seen.num_words and not retag and annotation.layout is None:
        # the file that is written is the one that was read: rarely what was wanted of a tagger
        note("all words had UPOS and a lemma already, which are kept; --retag predicts all anew")


def _label(
    corpus: Corpus,
    files: Sequence[str],
    columns: ColumnOptions,
    out: OutputOptions,
    invalid: str | None,
) -> None:
    """Label a corpus, of which `files` may have a word a line; say how good the labels are."""
    from seqtool.parsing.tagger.entities import LabelCounts

    labeller, annotation, counts = corpus.model, corpus.annotation, LabelCounts()
    options: dict[str, Any] = {**annotation.options, "counts": counts}
    are_columns = columns.are_for(files, skips_damaged=annotation.skip_invalid)
    if out.jobs > 1 and (options["retag"] or are_columns):
        what = "files with a word a line are labelled" if are_columns else "labels are compared"
        raise ConfigError(f"{what} in one process", hint="drop --jobs")
    data = labeller.config.data
    chosen = (
        columns.word_column or data.word_column,
        columns.label_column or data.label_column,
    )

    def parts_of(usable: Sequence[str]) -> Iterator[Part]:
        note_columns(usable, *chosen)
        for path in usable:
            for piece in labeller.tag_columns(path, *chosen, **options):
                yield path, piece.encode()

    corpus.annotation = replace(annotation, options=options)
    parts = parts_of if are_columns else None
    corpus.write(out, invalid, spark=SparkOptions(), parts_of=parts)
    note_labels(counts, retag=options["retag"])


@examples(
    "seqtool parse text.conllu -m runs/parser -o parsed.conllu",
    "seqtool parse letter.txt -m runs/mine --format tree",
    'echo "I love it." | seqtool parse --raw -m runs/mine',
    "seqtool parse text.conllu -m runs/parser -m runs/other",
    "seqtool parse text.conllu -m runs/parser --trace --format html -o steps.html",
)
def parse(
    files: FilesArgument = None,
    model: list[Path] | None = option(
        None, "A parser, or several that vote; runs/parser if not given.", "DIR", "--model", "-m"
    ),
    beam: int = option(1, "Hypotheses per sentence: 4 is better and slower than 1.", "N", min=1),
    retag: RetagOption = False,
    allow_missing: AllowMissingOption = False,
    clear_deps: bool = option(False, "Leave out the enhanced graph, which is not parsed."),
    *,
    out: OutputOptions,
    trees: TreeOptions,
    broken: BrokenOptions,
    text: RawTextOptions,
    spark: SparkOptions,
) -> None:
    """Parse sentences, or plain text.

    Of CoNLL-U only HEAD and DEPREL are written anew, and by a model of `train-parser --raw` the
    tags and lemmas that are `_`: comments, multiword tokens, empty nodes and all other columns come
    back as they were. Plain text needs such a model. Memory is bounded however long the input is.
    """
    from seqtool.parsing.annotation import Annotation

    known = (*FORMATS, "parquet") if spark.is_spark() else FORMATS
    others = ["--jobs"] * (out.jobs > 1) + ["--clear-deps"] * clear_deps
    format_ = trees.format_for(out.output, known, others)
    given = _inputs(files, spark, "trees")
    is_text = text.are_for(given)
    if trees.gold and (is_text or broken.of_annotation["skip_invalid"]):
        what = "--gold is for CoNLL-U of which all sentences are read"
        raise ConfigError(what, hint="parse first, then `seqtool draw PARSED --gold FILE`")
    if [*given, *(trees.gold or [])].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")
    paths = model or [default_model("parser")]
    parser = open_model(paths, "parser")
    note_beam(parser, beam, paths)
    _check_parser(parser, paths, trees, retag=retag)
    options = {
        "beam": beam,
        **({"retag": retag} if parser.has_tagger else {"allow_missing": allow_missing}),
        **({"scores": True} if trees.scores else {}),
    }
    annotation = Annotation(
        "parse",
        text.layout if is_text else None,
        options=options,
        nbest=trees.nbest,
        clear_deps=clear_deps,
        **broken.of_annotation,
    )
    corpus = Corpus(annotation, given, parser, paths)
    if format_ in DRAWINGS and not spark.is_spark():
        with corpus.items(out.output, broken.invalid) as items:
            trees.draw(annotation, parser, items, format_, out.output)
    else:
        corpus.write(out, broken.invalid, spark=spark, format_=format_)
    if corpus.seen.num_long:
        note(
            f"{counted(corpus.seen.num_long, 'sentence')} of more than {parser.longest:,} words: "
            "too long to look for the best tree as in others; the tree may be worse"
        )


def _check_parser(parser: Any, paths: Sequence[Path], trees: TreeOptions, *, retag: bool) -> None:
    """Refuse what a parser cannot do; say what its traces and probabilities are, if not plain."""
    if retag and not parser.has_tagger:
        raise ModelError(
            "has no tagger, so there is no --retag",
            hint="train one with `seqtool train-parser --raw`, or tag with `seqtool tag`",
            path=paths[0],
        )
    if trees.trace and parser.votes and parser.has_tagger and len(paths) == 1:
        note(
            f"{paths[0]}: its parsers vote, and a vote has no steps: these are of the parser in "
            f"{paths[0] / 'parser'} alone, whose tree may be another than the vote's"
        )
    if trees.scores and not parser.is_calibrated:
        note(
            "the vote of these parsers has no calibration, as one of train-parser --raw has: "
            "probabilities are the mean of the parsers'"
            if parser.votes
            else "the parser has no calibration: probabilities are those that it works with"
        )
