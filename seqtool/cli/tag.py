"""`seqtool tag`: give words their tags and lemmas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.models import default_model, open_model
from seqtool.cli.options import takes_options
from seqtool.cli.sentences import (
    AnnotatedFilesArgument,
    RawTextOptions,
    TargetOption,
    noted,
    sample_trees,
)


@takes_options()
def tag(
    files: AnnotatedFilesArgument = None,
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
    output: TargetOption = "-",
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also what the columns hold already.")
    ] = False,
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Write broken sentences as they are."),
    ] = False,
    *,
    text: RawTextOptions,
) -> None:
    """Give words UPOS, XPOS, FEATS and lemmas.

    What a file has already is kept, and what is predicted agrees with it: a UPOS or lemma that is
    `_` is predicted, and XPOS or FEATS where no word of the sentence has any. All other columns,
    comments, multiword tokens and empty nodes come back as they were, in bounded memory.
    """
    from seqtool.treebank.conllu import write_conllu
    from seqtool.treebank.gold import read_treebank

    given = files or [sample_trees()]
    path = model or default_model("tagger", "parser")
    tagger = open_model(path, "tagger")
    items = noted(read_treebank(given, "columns", skip_invalid=skip_invalid), "passed through")
    if text.are_for(given):
        items = text.read(given, tagger, path)
    write_conllu(tagger.tag_stream(items, retag=retag), output)
