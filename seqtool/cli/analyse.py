"""`seqtool analyse`: what models do, and one page of all that fits the models at hand.

An analysis is a function `analyse` of a module of `seqtool.analysis`; some of its parameters are
options of the command, as `SETTINGS` has them. `report` and `states`, which write
files of their own, are plain functions.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from seqtool.cli import options as cli
from seqtool.cli.annotate import AllowMissingOption
from seqtool.cli.models import (
    default_model,
    names_of,
    note_beam,
    note_unknown,
    open_model,
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

TREEBANK_KINDS = ("parser", "pipeline", "segmenter", "tagger")
UNNAMED = "If not given: stdin where that is a pipe or a file, else the shipped sample's English"


class Setting(NamedTuple):
    """The option for a parameter of analyses: its names, its type, its texts."""

    names: str
    kind: Any
    metavar: str
    help: str


SETTINGS = {
    "seed": Setting("--seed", int, "N", "Seed of every random choice"),
    "table": Setting("--table", str, "NAME", "Vectors: words, form, upos, labels; else the first"),
    "words": Setting("--word -w", list[str], "NAME", "Whose nearest are shown; repeatable"),
    "sentences": Setting("--sentence -s", list[str], "TEXT", "A sentence to look at; repeatable"),
    "tokens": Setting("--at", list[str], "TOKEN", "A token to look at; repeatable"),
    "tagger": Setting("--tagger", Path, "MODEL", "A tagger, to show each word class by itself"),
    "beam": Setting("--beam", int, "N", "Hypotheses that a parser follows at once"),
    "lengths": Setting("--lengths", str, "K,K...", "Tokens of context; 1 to 50 if not given"),
    "lags": Setting("--lags", int, "K", "The largest lag"),
    "num_targets": Setting("--targets", int, "N", "Tokens whose surprisal is taken"),
    "num_positions": Setting("--positions", int, "N", "Positions of the text, drawn"),
    "num_jacobians": Setting("--jacobians", int, "N", "Positions with their Jacobians"),
    "num_starts": Setting("--starts", int, "N", "States followed for each input"),
    "num_newton": Setting("--newton", int, "N", "Of these, starts of Newton's method"),
    "num_nearest": Setting("--nearest", int, "N", "How many of the nearest"),
    "num_mapped": Setting("--names", int, "N", "Names on the map"),
    "num_tokens": Setting("--tokens", int, "N", "Read no more of the text"),
    "split": Setting("--split", str, "NAME", "Split of a prepared corpus; valid if not given"),
}
DRAWN = {"seed": None, "split": None}  # what all that read a text have
LEAST = {"num_mapped": 2, "seed": 0}  # else 1


@dataclass(frozen=True)
class ModelOptions:
    """Which models are shown."""

    models: list[Path] | None = cli.option(
        None,
        "A model, or an ARPA file; repeat it to see several; else the default.",
        "MODEL",
        "-m",
        "--model",
    )


@dataclass(frozen=True)
class NetworkOptions(ModelOptions):
    """The same, where networks are among them."""

    initial: bool = cli.option(False, "Show each network before its training, too.")
    threads: cli.ThreadsOption = None


class Analysis:
    """The command of an analysis.

    Args:
        module: of `seqtool.analysis`, with a function `analyse`.
        kinds: of models, the default one of which is looked at if none is given.
        help: of the command.
        example: a command line.
        settings: parameters of the function that are options; what help says of their defaults.
            The function has the defaults themselves, and imports PyTorch.
    """

    def __init__(
        self,
        module: str,
        kinds: Sequence[str],
        help: str,
        example: str,
        settings: Mapping[str, int | None] | None = None,
    ) -> None:
        self.module, self.settings = module, settings or {}
        self._kinds, self._text = kinds, "GOLD" if module == "errors" else "TEXT"
        self.__doc__, self.examples = help, (example,)
        self.__signature__ = inspect.Signature([*self._parameters()])

    def _parameters(self) -> Iterator[inspect.Parameter]:
        def parameter(name: str, kind: Any, declared: Any = inspect.Parameter.empty) -> Any:
            named = inspect.Parameter.KEYWORD_ONLY
            return inspect.Parameter(name, named, annotation=kind, default=declared)

        if self.module not in ("cells", "embeddings"):
            what = "Treebank" if self._text == "GOLD" else "Text, or a prepared corpus"
            help = f"{what}. {UNNAMED} test part."
            yield parameter("text", Path | None, cli.argument(None, help, self._text))
        if self._kinds:
            has_networks = "lm" in self._kinds
            yield parameter("chosen", NetworkOptions if has_networks else ModelOptions)
        for name, default in self.settings.items():
            names, kind, metavar, help = SETTINGS[name]
            help += "." if default is None else f"; {default:,} if not given."
            least = LEAST.get(name, 1) if kind is int else None
            yield parameter(
                name, kind | None, cli.option(None, help, metavar, *names.split(), min=least)
            )
        yield parameter("shown", ShownOptions)

    def __call__(
        self,
        *,
        shown: ShownOptions,
        chosen: ModelOptions | None = None,
        text: Path | None = None,
        **given: Any,
    ) -> None:
        """Open the models, run the analysis with the options that are given, and show its report.

        Raises:
            SeqtoolError: a model or a text that cannot be used, options that are out of bounds.
        """
        shown.check()
        analyse = import_module(f"seqtool.analysis.{self.module}").analyse
        options = {name: value for name, value in given.items() if value or value == 0}
        if chosen is None:
            return show(analyse(), shown)
        paths = list(chosen.models or [default_model(*self._kinds)])
        threads = chosen.threads if isinstance(chosen, NetworkOptions) else None
        opened = [(name, self._open(Path(name), threads)) for name in names_of(paths)]
        if "beam" in options:
            for path, (_, model) in zip(paths, opened, strict=True):
                note_beam(model, options["beam"], [path])
        if "tagger" in options:
            options["tagger"] = open_model(options["tagger"], "tagger", option="--tagger")
        if "lengths" in options:
            options["lengths"] = _whole_numbers(options["lengths"])
        if self.module == "sparsity":
            options["statistics"] = _statistics(paths)
        if isinstance(chosen, NetworkOptions) and chosen.initial:
            opened = _with_initial(opened, options.get("seed", 1))
        if self.module == "embeddings":
            return show(analyse(opened, **options), shown)
        needing = {"lengths", "num_targets", "num_tokens", "tagger"} & options.keys()
        is_of_sentences = text is None and options.get("sentences") and not needing
        named: str | Path | None = text
        if text is None and not (is_of_sentences and not cli.is_stdin_given()):
            named = cli.stdin_or_sample(self._text, "trees" if self._text == "GOLD" else "text")
        with kept_text(named) as kept:
            show(analyse(opened, kept, **options), shown)
            if self.module == "errors":
                from seqtool.treebank.conllu import read_conllu

                sentences = list(read_conllu(str(kept), skip_option=""))
                for path, (_, model) in zip(paths, opened, strict=True):
                    note_unknown(model, sentences, path)

    def _open(self, path: Path, threads: int | None) -> Any:
        from seqtool.core import checkpoint
        from seqtool.lm.mixture.model import open_language_model

        if self._kinds == ("parser",):
            return open_model(path, "parser")
        if self.module == "embeddings" and not _is_language_model(path):
            return checkpoint.load(path)
        return open_language_model(path, threads=threads)


def _is_language_model(path: Path) -> bool:
    from seqtool.core import checkpoint

    return checkpoint.is_foreign(path) or checkpoint.read_header(path).kind not in TREEBANK_KINDS


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

    folders = [path for path in paths if not checkpoint.is_foreign(path)]
    return {str(path): checkpoint.read_header(path).statistics for path in folders}


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


gradients = Analysis(
    "gradients",
    ("lm",),
    "Show how far back gradients reach: their norm by the lag, and products of Jacobians.",
    "seqtool analyse gradients -m runs/lm --initial -o gradients.svg",
    {**DRAWN, "num_tokens": 2000, "lags": 50, "num_positions": 64, "num_jacobians": 4},
)
spectrum = Analysis(
    "spectra",
    ("lm",),
    "Show eigenvalues and singular values of recurrent matrices and of Jacobians.",
    "seqtool analyse spectrum -m runs/lm -o spectrum.svg",
    {**DRAWN, "num_tokens": 2000, "tokens": None, "num_positions": 3},
)
gates = Analysis(
    "gates",
    ("lm",),
    "Show how open gates are over a text, and how long the memory lasts.",
    "seqtool analyse gates test.txt -m runs/lm",
    {**DRAWN, "num_tokens": 1000},
)
dynamics = Analysis(
    "dynamics",
    ("lm",),
    "Show where the state settles when the input stays the same, and whether the start matters.",
    "seqtool analyse dynamics test.txt -m runs/lm",
    {**DRAWN, "num_tokens": 500, "tokens": None, "num_starts": 24, "num_newton": 8},
)
cells = Analysis(
    "cells",
    (),
    "Run networks that are set by hand, and maps of one number: what states can do.",
    "seqtool analyse cells",
)
context = Analysis(
    "context",
    ("lm", "ngram"),
    "Show how far back language models look: their surprisal when the context is cut.\n\n"
    "With --sentence, the surprisal of its last word too: two sentences that differ far before it "
    "show whether a model still knows what was said there. With no TEXT beside it, that alone.",
    "seqtool analyse context test.txt -m runs/lm -m runs/ngram",
    {**DRAWN, "num_tokens": 20_000, "num_targets": 300, "lengths": None, "sentences": None},
)
surprisal = Analysis(
    "surprisal",
    ("lm", "ngram"),
    "Show surprisal word by word, and where one language model is better than another.\n\n"
    "By how often a word was counted in training, by the distance to where it last was, and with "
    "--tagger by word class; the words by which models differ most; and sentences word by word. "
    "With --sentence and no TEXT, these sentences alone.",
    "seqtool analyse surprisal test.txt -m runs/lm -m runs/ngram --html page.html",
    {**DRAWN, "num_tokens": 20_000, "sentences": None, "tagger": None},
)
stack = Analysis(
    "stack",
    ("lm",),
    "Show what is open on the stack of a syntactic language model, word by word.\n\n"
    "Beside each word stand its surprisal, its head in the best tree, and the words that may be on "
    "top of the stack. The first sentences of a text are shown, or those of --sentence.",
    'seqtool analyse stack -m runs/syntactic -s "the dog that the cat sees sleeps"',
    {"sentences": None},
)
sparsity = Analysis(
    "sparsity",
    ("ngram",),
    "Show what n-gram models hold by order, and how much of a new text they do not hold.",
    "seqtool analyse sparsity test.txt -m runs/ngram",
    {**DRAWN, "num_tokens": 1_000_000},
)
errors = Analysis(
    "errors",
    ("parser",),
    "Show where parsers err: by relation, length, depth, sentence length, and what they confuse."
    "\n\nTwo parsers are compared word by word, too.",
    "seqtool analyse errors dev.conllu -m runs/parser -m runs/other",
    {"beam": 1},
)
embeddings = Analysis(
    "embeddings",
    ("lm", "parser", "tagger"),
    "Show which words, tags or labels have vectors that are alike, and a map of them.\n\n"
    "Any model with vectors will do: a neural language model, a tagger, a parser.",
    "seqtool analyse embeddings -m runs/lm --word dog -o map.svg",
    {"seed": None, "table": None, "words": None, "num_nearest": 6, "num_mapped": 60},
)


@examples("seqtool analyse report runs -o report.html")
def report(
    directory: Path = cli.argument(
        Path("runs"), "A folder of models, or of folders of models.", "DIR"
    ),
    output: Path | None = cli.option(None, "DIR/report.html if new.", "FILE", "-o"),
    text: Path | None = cli.option(None, "For language models; the sample's if not given.", "TEXT"),
    treebank: Path | None = cli.option(None, "For parsers; the sample's if not given.", "GOLD"),
    seed: cli.SeedOption = None,
    threads: cli.ThreadsOption = None,
    as_json: cli.JsonOption = False,
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
    options: dict[str, Any] = {"text": text, "treebank": treebank, "threads": threads}
    reports = list(
        overview(directory, seed=1 if seed is None else seed, on_analysis=cli.note, **options)
    )
    write_page(path, f"What the models of {directory} do", reports)
    if as_json:
        return cli.emit({"page": path, "reports": list(map(to_json, reports))})
    echo(path)


@examples(
    "seqtool analyse states text.txt -m runs/lm -o states.npy",
    "seqtool analyse states dev.conllu -m runs/tagger --layer 1 -o states.npy",
)
def states(
    text: list[str] | None = cli.argument(
        None,
        "Text for a language model, else CoNLL-U; the sample's test part if not given.",
        "TEXT",
    ),
    model: Path | None = cli.option(
        None, "A language model, tagger or parser; runs/lm if not given.", "MODEL", "-m"
    ),
    output: Path | None = cli.option(
        None, "The array, beside a .tsv of its words; a new states.npy if not given.", "FILE", "-o"
    ),
    layer: int | None = cli.option(
        None, "From 1, or 0 for word vectors; else the last one.", "N", min=0
    ),
    pool: Literal["last", "mean"] = cli.option(
        "last", "A word's last unit, or the mean of all.", "last|mean"
    ),
    part: Literal["parser", "tagger"] | None = cli.option(
        None, "Of a model of train-parser --raw; its parser.", "parser|tagger"
    ),
    raw: bool = cli.option(False, "TEXT is plain, as files named .txt are without this."),
    allow_missing: AllowMissingOption = False,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Write the state of a network after each word of a text: word vectors in context.

    They are a float32 array with a row for each word, beside a table of these words: row, sentence,
    number, word, start, end. Each sentence is read by itself. Memory does not grow with the text.
    """
    from seqtool.analysis.states import write_states
    from seqtool.core import checkpoint
    from seqtool.core.progress import progress_bar
    from seqtool.lm.mixture.model import open_language_model

    if output is None:
        output = Path("states.npy")
        refuse_unnamed(output)
    began = time.perf_counter()
    path = model or default_model("lm")
    is_lm = _is_language_model(path)
    opened: object = (
        open_language_model(path, device=device, threads=threads)
        if is_lm
        else checkpoint.load(path)
    )
    given = text or [cli.stdin_or_sample("TEXT", "text" if is_lm else "trees")]
    try:
        with progress_bar("reading", is_bytes=True) as on_progress:
            written = write_states(
                opened,
                given,
                output,
                layer=layer,
                pool=pool,
                part=part,
                raw=raw,
                allow_missing=allow_missing,
                on_progress=on_progress,
            )
    except ModelError as error:  # which does not know where the model is
        raise ModelError(error.message, hint=error.hint, path=error.path or path) from error
    if as_json:
        result = {**written._asdict(), "seconds": time.perf_counter() - began}
        return cli.emit({"output": output, "table": output.with_suffix(".tsv"), **result})
    words, sentences = counted(written.rows, "word"), counted(written.sentences, "sentence")
    echo(f"{output}: {words} of {sentences}, {written.width:,} numbers each")
