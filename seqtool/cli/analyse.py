"""`seqtool analyse`: what models do, and one page of all that fits the models at hand.

The commands are rows of a table: the module whose function `analyse` is called, the options, and
the help. `report` and `states`, which write files of their own, are functions.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast, get_type_hints

import typer

from seqtool.cli.annotate import AllowMissingOption
from seqtool.cli.models import (
    default_model,
    hinting_allow_missing,
    names_of,
    note_beam,
    note_unknown,
    one_model,
    open_model,
    open_tagger,
)
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    SeedOption,
    ThreadsOption,
    emit,
    is_stdin_given,
    note,
    stdin_or_sample,
)
from seqtool.cli.reports import (
    ShownOptions,
    check_folders,
    refuse_unnamed,
    show,
    to_json,
    write_page,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, ModelError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.analysis.states import Part
    from seqtool.lm.states import Pool

SEED = 1
PARTS = ("parser", "tagger")
TREEBANK_KINDS = ("parser", "pipeline", "segmenter", "tagger")


class Option(NamedTuple):
    """An option or argument of an analysis: the parameter that gets its value, and its type."""

    parameter: str
    annotation: Any


def _number(parameter: str, metavar: str, help: str, *, least: int = 1) -> Option:
    option = typer.Option(min=least, metavar=metavar, help=help)
    return Option(parameter, Annotated[int | None, option])


def _tokens(default: str) -> Option:
    help = f"Read no more of the text; {default} if not given."
    return _number("num_tokens", "N", help)


def _text(parameter: str, metavar: str, help: str) -> Option:
    return Option(parameter, Annotated[str | None, typer.Option(metavar=metavar, help=help)])


def _several(parameter: str, metavar: str, help: str, *names: str) -> Option:
    option = typer.Option(*names, metavar=metavar, help=f"{help}; repeat it for several.")
    return Option(parameter, Annotated[list[str] | None, option])


def _flag(parameter: str, help: str) -> Option:
    option = typer.Option(f"--{parameter}", help=help)
    return Option(parameter, Annotated[bool | None, option])


def _input(metavar: str, help: str) -> Option:
    return Option("text", Annotated[Path | None, typer.Argument(metavar=metavar, help=help)])


UNNAMED = "If not given: stdin where that is a pipe or a file, else the shipped sample's English"
TEXT = _input(
    "TEXT",
    f"Text, one sentence per line (also packed), or a prepared corpus. {UNNAMED} test text.",
)
GOLD = _input(
    "GOLD",
    f"Treebank: a CoNLL-U file (also packed), a directory, - for stdin. {UNNAMED} test treebank.",
)
MODEL = Option(
    "models",
    Annotated[
        list[Path] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="A model (a language model may be an ARPA file); repeat it to see several side by "
            "side. The default output of the training command if not given.",
        ),
    ],
)
INITIAL = _flag("initial", "Show each network as it was before its training, too (by --seed).")
SENTENCE = _several("sentences", "TEXT", "A sentence to look at", "--sentence", "-s")
SPLIT = _text("split", "NAME", "Split of a prepared corpus; valid if not given.")
SEED_OPTION = Option("seed", SeedOption)
THREADS = Option("threads", ThreadsOption)
NETWORKS = {"text": TEXT, "model": MODEL, "initial": INITIAL}
READING = {"split": SPLIT, "seed": SEED_OPTION, "threads": THREADS}


def _analysis(
    module: str, kinds: Sequence[str], help: str, *lines: str, **options: Option
) -> Callable[..., None]:
    """Return the command of an analysis.

    Args:
        module: of `seqtool.analysis`.
        kinds: of models, the default one of which is looked at if none is given.
        help: of the command.
        lines: its examples.
        options: by their names.
    """
    shown_types = get_type_hints(ShownOptions, include_extras=True)

    def command(**given: Any) -> None:
        shown = ShownOptions(**{name: given.pop(name) for name in shown_types})
        shown.check()
        named = {options[name].parameter: value for name, value in given.items()}
        wanted = {name: value for name, value in named.items() if value or value == 0}
        _run(module, kinds, shown, **wanted)

    command.__doc__ = help
    command.examples = lines  # type: ignore[attr-defined]
    annotations = {name: option.annotation for name, option in options.items()} | shown_types
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default=getattr(ShownOptions, name, None),
            )
            for name, annotation in annotations.items()
        ]
    )
    return command


def _run(
    module: str,
    kinds: Sequence[str],
    shown: ShownOptions,
    *,
    models: Sequence[Path] | None = None,
    text: Path | None = None,
    initial: bool = False,
    threads: int | None = None,
    **options: Any,
) -> None:
    """Open the models, run an analysis with the options that are given, and show its report."""
    analyse = import_module(f"seqtool.analysis.{module}").analyse
    if not kinds:
        return show(analyse(), shown)
    paths = list(models or [default_model(*kinds)])
    names = names_of(paths)
    opened = [(name, _open(path, kinds, threads)) for name, path in zip(names, paths, strict=True)]
    for path, (_, model) in zip(paths, opened, strict=True):
        if "beam" in options:
            note_beam(model, options["beam"], [path])
    if initial:
        opened = _with_initial(opened, options.get("seed", SEED))
    if "tagger" in options:
        options["tagger"] = open_tagger(Path(options["tagger"]))
    if "lengths" in options:
        options["lengths"] = _whole_numbers(options["lengths"])
    if module == "sparsity":
        options["statistics"] = _statistics(paths)
    if module == "embeddings":
        return show(analyse(opened, **options), shown)
    with kept_text(_text_of(module, text, options)) as kept:
        show(analyse(opened, kept, **options), shown)
        if module == "errors":
            from seqtool.treebank.conllu import read_conllu

            sentences = list(read_conllu(str(kept), skip_option=""))
            for path, (_, model) in zip(paths, opened, strict=True):
                note_unknown(model, sentences, path)


def _open(path: Path, kinds: Sequence[str], threads: int | None) -> Any:
    """Open a model of these kinds; a network computes with as many threads.

    Raises:
        ModelError: it is damaged, or of another kind.
    """
    from seqtool.core import checkpoint

    if kinds == ("parser",):
        return open_model(path, "parser")
    if "parser" in kinds and (
        path.is_file() or checkpoint.read_header(path).kind not in ("neural-lm", "mixture")
    ):
        return checkpoint.load(path)
    from seqtool.lm.mixture.model import open_language_model

    return open_language_model(path, threads=threads)


def _with_initial(models: Sequence[tuple[str, Any]], seed: int) -> list[tuple[str, Any]]:
    """Return models, after each network the one that it was before its training."""
    from seqtool.analysis.recurrence import initial_model
    from seqtool.lm.neural.model import NeuralLanguageModel

    result = []
    for name, model in models:
        result.append((name, model))
        if isinstance(model, NeuralLanguageModel):
            result.append((f"{name} (initial)", initial_model(model, seed)))
    return result


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        hint = "write it as 1,2,5"
        raise ConfigError(f"{text!r} is no list of whole numbers", hint=hint) from error


def _statistics(paths: Sequence[Path]) -> dict[str, Mapping[str, Any]]:
    """Return what the headers of n-gram models tell of their counts; an ARPA file tells nothing."""
    from seqtool.core import checkpoint

    folders = [path for path in paths if path.is_dir()]
    return {str(path): checkpoint.read_header(path).statistics for path in folders}


def _text_of(module: str, text: Path | None, options: Mapping[str, Any]) -> str | Path | None:
    """Return the text that is named, stdin, or the sample; None for sentences alone."""
    needing = {"lengths", "num_targets", "num_tokens", "tagger"} & options.keys()
    if text is None and options.get("sentences") and not needing and not is_stdin_given():
        return None
    if module == "errors":
        return text or stdin_or_sample("GOLD", "trees")
    return text or stdin_or_sample("TEXT")


@contextmanager
def kept_text(text: str | Path | None) -> Iterator[str | Path | None]:
    """Give a file of what is on stdin, which each model reads anew; any other text as it is."""
    from seqtool.core.reading import STDIN

    if text is None or str(text) != STDIN:
        yield text
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


gradients = _analysis(
    "gradients",
    ("lm",),
    "Show how far back gradients reach: their norm by the lag, and products of Jacobians.\n\n"
    "Beside the products stands the bound that the weights and gates allow.",
    "seqtool analyse gradients -m runs/lm --initial -o gradients.svg",
    **NETWORKS,
    lags=_number("lags", "K", "The largest lag; 50 if not given."),
    positions=_number(
        "num_positions", "N", "Tokens of the text whose loss is taken; 64 if not given."
    ),
    jacobians=_number(
        "num_jacobians",
        "N",
        "Of these, how many have their temporal Jacobians taken; 4 if not given.",
    ),
    tokens=_tokens("2,000"),
    **READING,
)
spectrum = _analysis(
    "spectra",
    ("lm",),
    "Show eigenvalues and singular values of recurrent matrices and of Jacobians.\n\n"
    "They are drawn in the complex plane, with the discs of Gersgorin and the unit circle.",
    "seqtool analyse spectrum -m runs/lm -o spectrum.svg",
    **NETWORKS,
    at=_several("tokens", "TOKEN", "Take the Jacobian where this token is read", "--at"),
    positions=_number(
        "num_positions", "N", "Without --at, how many positions are drawn; 3 if not given."
    ),
    tokens=_tokens("2,000"),
    **READING,
)
gates = _analysis(
    "gates",
    ("lm",),
    "Show how open gates are over a text, and how long the memory lasts.",
    "seqtool analyse gates test.txt -m runs/lm",
    **NETWORKS,
    tokens=_tokens("1,000"),
    **READING,
)
dynamics = _analysis(
    "dynamics",
    ("lm",),
    "Show where the state settles when the input stays the same, and whether the start matters.\n\n"
    "A warning says where two initial states lead to different perplexities.",
    "seqtool analyse dynamics test.txt -m runs/lm",
    **NETWORKS,
    at=_several("tokens", "TOKEN", "A fixed input beside the mean input; </s> if none", "--at"),
    starts=_number("num_starts", "N", "States followed for each input; 24 if not given."),
    newton=_number(
        "num_newton",
        "N",
        "Of these, from how many Newton's method looks for sources; 8 if not given.",
    ),
    tokens=_tokens("500"),
    **READING,
)
cells = _analysis(
    "cells",
    (),
    "Run networks that are set by hand, and maps of one number: what states can do.\n\n"
    "The networks hold a sum, compare two sums, and tell whether ones are odd in number; the maps "
    "settle in a point, go round in a cycle, or never settle.",
    "seqtool analyse cells",
)
context = _analysis(
    "context",
    ("lm", "ngram"),
    "Show how far back language models look: their surprisal when the context is cut.\n\n"
    "With --sentence, the surprisal of its last word too: two sentences that differ far before it "
    "show whether a model still knows what was said there. With no TEXT beside it, that alone.",
    "seqtool analyse context test.txt -m runs/lm -m runs/ngram",
    text=TEXT,
    model=MODEL,
    sentence=SENTENCE,
    lengths=_text("lengths", "K,K...", "Tokens of context to try; 1 to 50 if not given."),
    targets=_number("num_targets", "N", "Tokens whose surprisal is taken; 300 by default."),
    initial=INITIAL,
    tokens=_tokens("20,000"),
    **READING,
)
surprisal = _analysis(
    "surprisal",
    ("lm", "ngram"),
    "Show surprisal word by word, and where one language model is better than another.\n\n"
    "By how often a word was counted in training, by the distance to where it last was, and with "
    "--tagger by word class; the words by which models differ most; and sentences word by word. "
    "With --sentence and no TEXT, these sentences alone.",
    "seqtool analyse surprisal test.txt -m runs/lm -m runs/ngram --html page.html",
    text=TEXT,
    model=MODEL,
    sentence=SENTENCE,
    tagger=_text("tagger", "MODEL", "A tagger, to show each word class by itself."),
    initial=INITIAL,
    tokens=_tokens("20,000"),
    **READING,
)
sparsity = _analysis(
    "sparsity",
    ("ngram",),
    "Show what n-gram models hold by order, and how much of a new text they do not hold.",
    "seqtool analyse sparsity test.txt -m runs/ngram",
    text=TEXT,
    model=MODEL,
    tokens=_tokens("1,000,000"),
    split=SPLIT,
)
errors = _analysis(
    "errors",
    ("parser",),
    "Show where parsers err: by relation, length, depth, sentence length, and what they confuse."
    "\n\nTwo parsers are compared word by word, too.",
    "seqtool analyse errors dev.conllu -m runs/parser -m runs/other",
    text=GOLD,
    model=MODEL,
    beam=_number("beam", "N", "Hypotheses that a parser follows at once; 1 if not given."),
)
embeddings = _analysis(
    "embeddings",
    ("lm", "parser", "tagger"),
    "Show which words, tags or labels have vectors that are alike, and a map of them.\n\n"
    "Any model with vectors will do: a neural language model, a tagger, a parser.",
    "seqtool analyse embeddings -m runs/lm --word dog -o map.svg",
    model=MODEL,
    table=_text("table", "NAME", "Which vectors: words, form, upos, labels; else the first."),
    word=_several("words", "NAME", "Whose nearest are shown", "--word", "-w"),
    initial=INITIAL,
    nearest=_number("num_nearest", "N", "How many of the nearest; 6 by default."),
    names=_number("num_mapped", "N", "Names on the map; 60 by default.", least=2),
    seed=SEED_OPTION,
    threads=THREADS,
)


@examples(
    "seqtool analyse report runs -o report.html",
)
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of models, or of folders of models.")
    ] = Path("runs"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page; a new DIR/report.html if not given."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="TEXT",
            help="What language models are shown on; the sample's test text of their language if "
            "not given.",
        ),
    ] = None,
    treebank: Annotated[
        Path | None,
        typer.Option(metavar="GOLD", help="What parsers are shown on; likewise."),
    ] = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one page about the models of a directory: what was trained, how well, what it does.

    It holds the learning curves and every analysis that fits the models. `seqtool analyse` alone
    does this with those in runs/.
    """
    from seqtool.analysis.drawing import require_matplotlib
    from seqtool.analysis.overview import overview

    path = output or directory / "report.html"
    check_folders(output)
    if output is None:
        refuse_unnamed(path)
    require_matplotlib()
    reports = list(
        overview(
            directory,
            text=text,
            treebank=treebank,
            seed=SEED if seed is None else seed,
            threads=threads,
            on_analysis=note,
        )
    )
    write_page(path, f"What the models of {directory} do", reports)
    if as_json:
        return emit({"page": path, "reports": list(map(to_json, reports))})
    echo(path)


@examples(
    "seqtool analyse states text.txt -m runs/lm -o states.npy",
    "seqtool analyse states dev.conllu -m runs/tagger --layer 1 -o states.npy",
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
            written = write_states(
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
        result = {**written._asdict(), "seconds": time.perf_counter() - began}
        return emit({"output": output, "table": output.with_suffix(".tsv"), **result})
    words, sentences = counted(written.rows, "word"), counted(written.sentences, "sentence")
    echo(f"{output}: {words} of {sentences}, {written.width:,} numbers each")
