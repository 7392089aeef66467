"""`seqtool states`: the vectors that a network has for the words of a text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from seqtool.cli.annotate import AllowMissingOption
from seqtool.cli.models import default_model, hinting_allow_missing, one_model
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    ThreadsOption,
    emit,
    stdin_or_sample,
    takes_options,
)
from seqtool.cli.reports import refuse_unnamed
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.analysis.states import Part
    from seqtool.lm.states import Pool

PARTS = ("parser", "tagger")
TREEBANK_KINDS = ("parser", "pipeline", "segmenter", "tagger")


@takes_options()
@examples(
    "seqtool states text.txt -m runs/lm -o states.npy",
    "seqtool states dev.conllu -m runs/tagger --layer 1 -o states.npy",
)
def states(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text, one sentence per line, for a language model; CoNLL-U for a tagger or "
            "parser; either for a model of train-parser --raw. Files (also packed), "
            "directories, - for stdin. The shipped sample's English test text or trees if not "
            "given.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="A neural language model, tagger or parser with an encoder; runs/lm if not given.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the array goes (.npy); the words go to a .tsv of the same name. A new "
            "states.npy if not given.",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Which layer, from 1; of a language model, 0 is the embedding. The last one if "
            "not given.",
        ),
    ] = None,
    pool: Annotated[
        str,
        typer.Option(
            metavar="last|mean",
            help="Of a language model: the state after a word's last unit, or the mean over all of "
            "its units.",
        ),
    ] = "last",
    part: Annotated[
        str | None,
        typer.Option(
            metavar="parser|tagger",
            help="Of a model of train-parser --raw: whose states; its parser's if not given.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="TEXT is plain text for a model of train-parser --raw, as files named .txt are "
            "without this option.",
        ),
    ] = False,
    allow_missing: AllowMissingOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the state of a network after each word of a text: word vectors in context.

    They are a float32 array with a row for each word, beside a table of these words: row, sentence,
    number, word, start, end. Each sentence is read by itself. Memory does not grow with the text.
    """
    from seqtool.analysis.states import write_states
    from seqtool.core import checkpoint
    from seqtool.core.progress import progress_bar
    from seqtool.lm.mixture.model import open_language_model
    from seqtool.lm.model import LanguageModel

    for option, value, known in (("pool", pool, ("last", "mean")), ("part", part, PARTS)):
        if value is not None and value not in known:
            raise ConfigError(f"--{option} is {value!r}", hint=f"choose {' or '.join(known)}")
    if output is None:
        output = Path("states.npy")
        refuse_unnamed(output)
    began = time.perf_counter()
    path = one_model(model) or default_model("lm")
    is_lm = path.is_file() or checkpoint.read_header(path).kind not in TREEBANK_KINDS
    opened: object = (
        open_language_model(path, device=device, threads=threads)
        if is_lm
        else checkpoint.load(path)
    )
    given = text or [
        stdin_or_sample("TEXT", "text" if isinstance(opened, LanguageModel) else "trees")
    ]
    try:
        with hinting_allow_missing(), progress_bar("reading", is_bytes=True) as on_progress:
            found = write_states(
                opened,
                given,
                output,
                layer=layer,
                pool=cast("Pool", pool),
                part=cast("Part | None", part),
                raw=raw,
                allow_missing=allow_missing,
                on_progress=on_progress,
            )
    except ModelError as error:  # which does not know where the model is
        raise ModelError(error.message, hint=error.hint, path=error.path or path) from error
    if as_json:
        result = {**found._asdict(), "seconds": time.perf_counter() - began}
        return emit({"output": output, "table": output.with_suffix(".tsv"), **result})
    words, sentences = counted(found.rows, "word"), counted(found.sentences, "sentence")
    echo(f"{output}: {words} of {sentences}, {found.width:,} numbers each")
