"""`seqtool tag`: give words their tags and lemmas."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqtool.cli.options import default_model
from seqtool.cli.raw_text import (
    PresegmentedOption,
    PretokenizedOption,
    RawOption,
    RulesOption,
    is_raw,
    read_raw,
)

if TYPE_CHECKING:
    pass


def tag(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="CoNLL-U (HEAD and DEPREL may be anything) or plain text, see --raw; files (also "
            ".gz, .zst), directories, or - for stdin. The shipped sample's English test trees if "
            "not given.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIR",
            help="A tagger, or what train-parser --raw made; runs/tagger or runs/parser if not "
            "given.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout."),
    ] = "-",
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also what the columns hold already.")
    ] = False,
    raw: RawOption = False,
    rules: RulesOption = False,
    presegmented: PresegmentedOption = False,
    pretokenized: PretokenizedOption = False,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Write broken sentences as they are."),
    ] = False,
) -> None:
    """Give words UPOS, XPOS, FEATS and lemmas.

    What a file has already is kept, and what is predicted agrees with it: a UPOS or lemma that is
    `_` is predicted, and XPOS or FEATS where no word of the sentence has any. All other columns,
    comments, multiword tokens and empty nodes come back as they were, in bounded memory.
    """
    from seqtool.cli.models import open_tagger
    from seqtool.cli.treebanks import noted, read_treebank, sample_trees
    from seqtool.treebank.conllu import write_conllu

    given = files or [sample_trees()]
    path = model or default_model("tagger", "parser")
    tagger = open_tagger(path)
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    items = noted(read_treebank(given, "columns", skip_invalid=skip_invalid), "passed through")
    if is_raw(given, raw=raw, rules=rules, given=presegmented or pretokenized):
        items = read_raw(
            given,
            tagger,
            path,
            rules=rules,
            presegmented=presegmented,
            pretokenized=pretokenized,
        )
    write_conllu(tagger.tag_stream(items, retag=retag), output)
