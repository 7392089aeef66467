"""`seqtool tag`: give words their tags and lemmas."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from seqtool.cli.options import default_model


def tag(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="CoNLL-U files (also .gz, .zst), directories, or - for stdin; HEAD and DEPREL may "
            "be anything. The shipped sample's English test trees if not given.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="DIR", help="A tagger; runs/tagger if not given."),
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout."),
    ] = "-",
    retag: Annotated[
        bool, typer.Option("--retag", help="Predict also what the columns hold already.")
    ] = False,
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
    from seqtool.cli.treebanks import read_columns, sample_trees
    from seqtool.corpora.conllu import write_conllu

    tagger = open_tagger(model or default_model("tagger"))
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    read = read_columns(files or [sample_trees()], skip_invalid=skip_invalid)
    write_conllu(tagger.tag_stream(read, retag=retag), output)
