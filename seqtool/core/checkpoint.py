"""One directory format for every model: `model.json`, vocabulary or tokenizer, weights.

    model.json             header: format version, kind, configuration, scores, sums of the files
    vocabulary.json        or tokenizer.model
    weights.safetensors    every array of the model
    README.md              a model card, free to be edited
    log.jsonl, last/       left by training: its log, and the state that --resume continues from
    best/                  the model while training goes on
    lm/                    the language model that a classifier reads
    run.json, corpus/      what was trained: the settings, and a raw text once it is prepared

A model is there whole or not at all; `seqtool inspect` finds a changed bit by the sums. Loading
parses JSON and safetensors and never executes code from a file. `pack` makes one file of a model:
a zip of the first four, and of those of the models in it, which is unpacked to be opened.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, overload

from seqtool.core import runtime, storage
from seqtool.core.config import Config, Registry, from_dict
from seqtool.core.errors import ConfigError, ModelError, OutputError
from seqtool.core.reading import MODEL
from seqtool.core.version import __version__

M = TypeVar("M")
C = TypeVar("C", bound=Config)

FORMAT_VERSION = 2  # of models, and of runs and their states
HEADER = MODEL
WEIGHTS = "weights.safetensors"
CARD = "README.md"
RUN = storage.RECORD

# what a run directory may hold, and --force may therefore remove
_OURS = {
    *(HEADER, WEIGHTS, CARD, RUN, "vocabulary.json", "tokenizer.model", "log.jsonl"),
    *("last", "best", "corpus", "tensorboard"),
    *("jackknife", "treebank"),
}

# folders of the models in a model; of several of a kind, with a number
_PART = r"(?:segmenter|multiword|tagger|parser|graph|perceptron)(?:-[0-9]+)?|lm"

LOADERS: Registry[Callable[..., Any]] = Registry(
    "kind of model",
    {
        "class-ngram": "seqtool.lm.ngram.classes:load_model",
        "classifier": "seqtool.classification.model:load_model",
        "labeller": "seqtool.parsing.tagger.labeller:Labeller.load",
        "mixture": "seqtool.lm.mixture.model:load_model",
        "neural-lm": "seqtool.lm.neural.model:load_model",
        "ngram": "seqtool.lm.ngram.model:load_model",
        "parser": "seqtool.parsing.parser.parser:load_model",
        "pipeline": "seqtool.parsing.pipeline.model:load_model",
        "segmenter": "seqtool.parsing.segmenter.model:Segmenter.load",
        "snm": "seqtool.lm.snm.model:load_model",
        "syntactic-lm": "seqtool.parsing.syntactic.model:load_model",
        "tagger": "seqtool.parsing.tagger.model:Tagger.load",
    },
)

# kinds of models that work together, and what makes one of several
TOGETHER: Registry[Callable[[Sequence[Any]], Any]] = Registry(
    "kind of models that work together",
    dict.fromkeys(("parser", "pipeline"), "seqtool.parsing.pipeline.model:together"),
)

# models that are one file of another program's: each takes a path, and gives None if it is not such
FILE_LOADERS: Registry[Callable[[Path], Any | None]] = Registry(
    "kind of model file", {"arpa": "seqtool.lm.ngram.model:load_arpa"}
)

# kind of a run -> the command that trains it; the runs of train-lm name no kind
TRAINERS = {
    "classifier": "train-classifier",
    "labeller": "train-tagger",
    "parser": "train-parser",
    "pipeline": "train-parser",
    "segmenter": "train-parser --raw --only segmenter",
    "syntactic-lm": "train-lm --syntactic",
    "tagger": "train-tagger",
}

# of language models
LM_KINDS = ("neural-lm", "ngram", "class-ngram", "snm", "syntactic-lm", "mixture")

_AGAIN = "copy the model again, or train it again"
# what unpacking a damaged zip file raises, and one that has a name twice
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, ValueError, RuntimeError, OverflowError, struct.error),
    *(FileExistsError, NotADirectoryError),
)


@dataclass(frozen=True)
class Header:
    """What `model.json` holds."""

    kind: str  # which loader reads the model: "neural-lm", "ngram"
    config: dict[str, Any]  # resolved
    tokenizer: dict[str, Any]  # what `load_tokenizer` needs beside the files: unit, lowercase
    scores: dict[str, Any] = field(default_factory=dict)  # what was measured: "valid_perplexity"
    data: dict[str, Any] = field(default_factory=dict)  # where the text came from, and its size
    command: str = ""  # that made the model
    precision: str = ""  # of the products of training: "float32", "bf16, gru layers in float32"
    num_parameters: int = 0  # trained numbers, tied ones counted once
    versions: dict[str, str] = field(default_factory=dict)  # of seqtool and what decides numbers
    # name -> {"bytes", "sha256"} of every other file that the model needs
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)  # counts, by names of its kind

    def __post_init__(self) -> None:
        """Check every type, as headers are read from files; a TypeError tells of another."""
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            kind = {"str": str, "int": int}.get(str(item.type), dict)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise TypeError(f"{item.name} is {value!r}")
        for name, entry in self.files.items():
            is_entry = isinstance(entry, dict) and isinstance(entry.get("bytes"), int)
            if not is_entry or Path(name).name != name:
                raise TypeError(f"file {name!r}: {entry!r}")


def check_output(path: str | Path, *, force: bool, hint: str | None = None) -> None:
    """Refuse an output directory that exists, unless `force`; with it, only our own is replaced.

    The hint of the OutputError says what to do about a model that is there; that of a command that
    trains, if not given.
    """
    path = storage.present(Path(path))
    if not path.exists():
        return
    held = storage.versions(path)
    names = set().union(*map(_names, held))
    if path.is_dir() and not names:
        return
    others = (names | _names(path)) - _OURS
    foreign = sorted(name for name in others if not re.fullmatch(_PART, name))
    # a README.md or a folder called corpus alone may be anybody's
    proofs = (HEADER, RUN, "corpus/corpus.json", f"lm/{HEADER}")
    if foreign or not any((folder / proof).is_file() for folder in held for proof in proofs):
        holds = f"holds {foreign[0]}, which is not of a model" if foreign else "is no model"
        what = f"exists and {holds}, so it will not be replaced"
        raise OutputError(what, hint="choose another output with -o", path=path)
    if not force:
        can_resume = run_record(path).is_file()
        ways = "replace it with --force, or choose another with -o"
        own = f"continue it with --resume, {ways}" if can_resume else ways
        raise OutputError("exists already", hint=hint or own, path=path)


def _names(path: Path) -> set[str]:
    """Return the names in a directory, but for leftovers; the own one of a file."""
    if not path.is_dir():
        return {path.name}
    return {item.name for item in path.iterdir() if not storage.is_leftover(item.name)}


def save(path: str | Path, header: Header, card: str, fill: Callable[[Path], None]) -> None:
    """Write a model directory, replacing what is there.

    The header is all of `model.json` but the sums of the files and seqtool's version. `fill` writes
    every other file of the model but the card into the directory it is given.
    """
    with storage.atomic_directory(path) as directory:
        fill(directory)
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": storage.sum_of(file)}
            for file in sorted(directory.iterdir())
        }
        (directory / CARD).write_text(card, encoding="utf-8")
        content = _header_content(dataclasses.replace(header, files=files))
        storage.write_json(directory / HEADER, content)


def amend(path: str | Path, header: Header, card: str) -> None:
    """Replace the header and the card of a finished model, as when its final scores are known."""
    path = Path(path)
    storage.replace_text(path / CARD, card)
    storage.write_json(path / HEADER, _header_content(header))
    storage.drop_kept(path)


def _header_content(header: Header) -> dict[str, Any]:
    versions = {**header.versions, "seqtool": __version__}
    complete = dataclasses.asdict(dataclasses.replace(header, versions=versions))
    return storage.sealed({"format_version": FORMAT_VERSION, **complete})


def promote(source: Path, destination: Path) -> None:
    """Make the model in `source` that of `destination`, which may hold other files, and drop it.

    Until all is done `source` stays, and `find` prefers it: a promotion that was cut off is
    repeated.
    """
    files = sorted(source.iterdir(), key=lambda file: (file.name == HEADER, file.name))
    for file in files:
        storage.link(file, destination / file.name)
    storage.flush(destination)
    storage.discard(source)


def copy(source: str | Path, destination: Path) -> None:
    """Copy a model without what its training left: its files, its header and its card."""
    source = find(source)
    with storage.atomic_directory(destination) as directory:
        for name in _files(source):
            (directory / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source / name, directory / name)


def _files(directory: Path) -> list[str]:
    """Return the names of the files of a model and of the models in it, below its directory."""
    names = [*read_header(directory).files, HEADER, *[CARD] * (directory / CARD).is_file()]
    for part in sorted(path.parent for path in directory.glob(f"*/{HEADER}")):
        if re.fullmatch(_PART, part.name):
            names += [f"{part.name}/{name}" for name in _files(part)]
    return names


def pack(path: str | Path, output: str | Path) -> None:
    """Write a model, as `copy` does, to one file, which opens as the model does.

    It is a zip file of files that are not compressed; the same model gives the same bytes.

    Raises:
        ModelError: there is no model, it is damaged, or a mixture, whose parts are elsewhere.
        OutputError: `output` is the model.
    """
    source, header = find(path), read_header(path)
    if header.kind == "mixture":
        what, hint = "a mixture only refers to its parts", "pack its parts, and mix these files"
        raise ModelError(f"{what}, so it cannot be packed", hint=hint, path=path)
    verify(source, header, sums=True)
    storage.refuse_input(output, [path])
    with storage.atomic_file(output) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name in _files(source):
            member = zipfile.ZipInfo(name)  # stored, and dated 1980
            member.file_size = (source / name).stat().st_size  # tells which need ZIP64
            with archive.open(member, "w") as target, (source / name).open("rb") as file:
                shutil.copyfileobj(file, target)


def is_packed(path: str | Path) -> bool:
    """Whether a file begins as what `pack` makes."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as stream:
        return stream.read(4) == b"PK\3\4"


def is_foreign(path: str | Path) -> bool:
    """Whether a path is that of a file, and no packed model: of another program, as ARPA is."""
    return Path(path).is_file() and not is_packed(path)


@cache
def _unpacked(path: Path, *state: int) -> Path:
    """Unpack what `pack` made to a folder that is there until the process ends.

    `state` tells the file from another one at its path. A stranger may have made it: nothing else
    than a model is written, and no more than the file has.
    """
    from multiprocessing.util import Finalize

    directory = Path(tempfile.mkdtemp(prefix="seqtool-"))
    # unlike with atexit, a worker process does so too, and leaves alone what its maker unpacked
    Finalize(None, shutil.rmtree, (directory, True), exitpriority=0)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            other = next((each.filename for each in members if not _is_allowed(each)), None)
            if size > path.stat().st_size or other is not None:
                raise ValueError(f"{other or 'a member'} is not as seqtool pack writes it")
            for member in members:
                target = directory / member.filename
                target.parent.mkdir(exist_ok=True)
                with archive.open(member) as file, target.open("xb") as copy:
                    shutil.copyfileobj(file, copy)
        header = read_header(directory)
        names = {member.filename for member in members}
        if header.kind == "mixture" or names != set(_files(directory)):
            raise ValueError("it holds more or less than a model")
        verify(directory, header, sums=True)
    except (ModelError, *_DAMAGE) as error:
        shutil.rmtree(directory, ignore_errors=True)
        what = f"no whole packed model: {getattr(error, 'message', error)}"
        hint = "copy it again, or make it again with seqtool pack"
        raise ModelError(what, hint=hint, path=path) from error
    return directory


def _is_allowed(member: zipfile.ZipInfo) -> bool:
    """Whether `pack` may have written a member of a zip file."""
    return (
        re.fullmatch(rf"(?:(?:{_PART})/)?\w[\w.-]{{,99}}", member.filename, re.ASCII) is not None
        and not stat.S_ISLNK(member.external_attr >> 16)
        and member.compress_type == zipfile.ZIP_STORED
        and member.header_offset >= 0
    )


def find(path: str | Path, wanted: Sequence[str] = ()) -> Path:
    """Return the directory that holds the model: `path`, or `path/best` while it is in training.

    Until a run that replaces a model has one of its own, it is where that was set aside. What
    `pack` made is unpacked, once in a process. Where there is none, the hint of a ModelError says
    what to do; where only some kinds are wanted, it names models of these, and the command that
    trains the first of them.
    """
    path = storage.present(Path(path))
    if is_packed(path):
        now = path.stat()
        state = now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns
        if not _unpacked(path, *state).is_dir():  # somebody has cleaned the temporary folder
            _unpacked.cache_clear()
        return _unpacked(path, *state)
    if not path.is_dir():
        what = "neither a model directory nor an ARPA file" if path.exists() else "no such model"
        raise ModelError(what, hint=_known_models(path, wanted), path=path)
    for content in storage.versions(path):
        for directory in (storage.present(content / "best"), content):
            if (directory / HEADER).is_file():
                return directory
    what, hint = f"not a model directory: it has no {HEADER}", _known_models(path, wanted)
    if run_record(path).is_file():
        what = "training has not made a model yet"
        hint = f"continue with: {runtime.resuming(trainer(str(run_kind(path))), path)}"
    raise ModelError(what, hint=hint, path=path)


def run_record(path: str | Path) -> Path:
    """Return where the record of the newest run of a directory is, if there is one."""
    return storage.versions(Path(path))[0] / RUN


def trainer(kind: str) -> str:
    """Return the command that trains the model of a run of this kind."""
    return TRAINERS.get(kind, "train-lm")


def run_kind(path: str | Path) -> str | None:
    """Return the kind of model that the run in a directory trains; None where none is named."""
    return _kind_in(run_record(path))


def _kind_in(path: Path) -> str | None:
    """Return the kind that a header or the record of a run names; None of a damaged one."""
    try:
        kind = storage.read_object(path).get("kind")
    except (OSError, ValueError):
        return None
    return kind if isinstance(kind, str) else None


def models_in(folder: Path, wanted: Sequence[str] = ()) -> list[str]:
    """Return the models that a folder and its runs/ hold, of some kinds or of all, sorted."""
    headers = [*folder.glob(f"*/{HEADER}"), *folder.glob(f"runs/*/{HEADER}")]
    return sorted(str(path.parent) for path in headers if not wanted or _kind_in(path) in wanted)


def _known_models(path: Path, wanted: Sequence[str]) -> str:
    if inside := models_in(path, wanted):
        return f"name one of the models in it: {', '.join(inside[:5])}"
    folder = path.parent if path.parent.is_dir() else Path()
    if known := [model for model in models_in(folder, wanted) if Path(model) != path]:
        return f"models at hand: {', '.join(known[:5])}"
    return f"train one, for example with: seqtool {trainer(wanted[0] if wanted else '')}"


def check_format(version: Any, path: Path) -> None:
    """Refuse a model, a run or a state that another version of seqtool wrote.

    Raises:
        ModelError: it did.
        ValueError: `version` is no number of a format.
    """
    if type(version) is not int:
        raise ValueError("no format version")
    if version != FORMAT_VERSION:
        raise _of_another_version(f"format {version}, not {FORMAT_VERSION}", path)


def _of_another_version(why: str, path: Path) -> ModelError:
    what, hint = "made by another version of seqtool", "train it again, or use that version"
    return ModelError(f"{what} ({why})", hint=hint, path=path)


def stored_settings(kind: type[C], values: Mapping[str, Any], path: Path) -> C:
    """Return a configuration that a model or a run stores in the file `path`.

    Raises:
        ModelError: it has a setting or a value that this version does not know.
    """
    try:
        return from_dict(kind, values)
    except ConfigError as error:
        raise _of_another_version(error.message, path) from error


def read_header(path: str | Path) -> Header:
    """Read `model.json`; a ModelError if it is missing, damaged or of another version."""
    header_path = find(path) / HEADER
    try:
        content = storage.read_object(header_path)
        check_format(content.pop("format_version", None), header_path)
        content.pop(storage.SEAL, None)
        return Header(**content)
    except (ValueError, TypeError) as error:
        raise ModelError("damaged model header", hint=_AGAIN, path=header_path) from error


def file_sizes(directory: Path, header: Header) -> dict[str, int]:
    """Return the bytes of each file of a model, and of each part of a pipeline."""
    sizes = {name: int(entry.get("bytes", 0)) for name, entry in header.files.items()}
    if header.kind == "pipeline":
        for path in sorted(directory.glob(f"*/{HEADER}")):
            of_part = file_sizes(path.parent, read_header(path.parent))
            sizes[f"{path.parent.name}/"] = sum(of_part.values())
    return sizes


def verify(directory: Path, header: Header, *, sums: bool = False) -> None:
    """Check that every file of a model is there and has its size.

    With `sums`, those of all files are checked, and of the models of which it is made.

    Raises:
        ModelError: a file is missing or damaged.
    """
    for name, recorded in header.files.items():
        path = directory / name
        if not path.is_file():
            raise ModelError("this file of the model is missing", hint=_AGAIN, path=path)
        if (size := path.stat().st_size) != recorded["bytes"]:
            what = f"damaged: {size:,} bytes instead of {recorded['bytes']:,}"
            raise ModelError(what, hint=_AGAIN, path=path)
        if sums and recorded.get("sha256") not in (None, storage.sum_of(path)):
            raise ModelError(f"damaged: not as {HEADER} has its sum", hint=_AGAIN, path=path)
    if sums:
        path = directory / HEADER
        content = storage.read_object(path)
        if storage.SEAL in content and storage.sealed(content) != content:
            raise ModelError("damaged: not as its own sum has it", hint=_AGAIN, path=path)
        for part in sorted(directory.glob(f"*/{HEADER}")):
            verify(part.parent, read_header(part.parent), sums=True)


@overload
def load(path: str | Path | Sequence[str | Path], *, device: str = "cpu") -> Any: ...
@overload
def load(path: str | Path | Sequence[str | Path], kind: type[M], *, device: str = "cpu") -> M: ...
def load(
    path: str | Path | Sequence[str | Path],
    kind: type[Any] | None = None,
    *,
    device: str = "cpu",
) -> Any:
    """Open any model, or several parsers over one treebank that find trees together.

    What it is, only the file tells: a `Pipeline`, `Parser`, `Tagger`, `Segmenter`, `Labeller`,
    `Classifier` or language model. Name the class and you get that or an error, and type checkers
    know it:

        nlp = seqtool.load("runs/mine", seqtool.Pipeline)
        both = seqtool.load(["runs/mine", "runs/graph"])

    Args:
        path: a model directory, or one file that `pack` or another program (ARPA) made; or a
            list of parsers and pipelines, see `seqtool.parsing.pipeline.model.together`.
        kind: the class that the model must have.
        device: where the arrays go ("cpu", "cuda", "mps").

    Raises:
        ModelError: the model is missing, damaged, of another kind or version; or
            several do not work together.
    """
    if isinstance(path, str | Path):
        model = _open(path, device)
    elif not isinstance(path, Sequence):
        raise TypeError(f"expected the path of a model, or a list of paths, not {path!r}")
    else:
        paths, path = list(path), ", ".join(map(str, path))
        model = _open_together(paths, device)
    if kind is not None and not isinstance(model, kind):
        found = type(model).__name__
        hint = f"load it without a class, or with {found}"
        raise ModelError(f"is a {found}, not a {kind.__name__}", hint=hint, path=path)
    return model


def _open_together(paths: Sequence[str | Path], device: str) -> Any:
    """Open several models, and make one of them."""
    if not paths:
        raise ModelError("no model is given", hint="give the path of one or more")
    if len(paths) == 1:
        return _open(paths[0], device)
    models = []
    for path in paths:
        model = _open(path, device)
        if getattr(model, "kind", None) not in TOGETHER:
            hint = "name parsers, or what `seqtool train-parser --raw` made"
            raise ModelError("is no parser, so it works alone", hint=hint, path=path)
        models.append(model)
    try:
        return TOGETHER[models[0].kind](models)
    except ModelError as error:  # which does not know where the models are
        named = f"{', '.join(map(str, paths))}: {error.message}"
        raise ModelError(named, hint=error.hint) from error


def _open(path: str | Path, device: str) -> Any:
    if is_foreign(path):
        for kind in FILE_LOADERS:
            if (model := FILE_LOADERS[kind](Path(path))) is not None:
                return model
    directory = find(path)
    header = read_header(directory)
    if header.kind not in LOADERS:
        what = f"a model of kind {header.kind!r} is unknown to this seqtool"
        raise ModelError(what, hint="install a newer one (`seqtool help first-hour`)", path=path)
    return LOADERS[header.kind](directory, header, device=device)


def compose(
    header: Header, title: str, about: str, *sections: str, maker: str, use: Sequence[str] = ()
) -> str:
    """Return the text of a model card: a heading, what the model is, tables and notes.

    Empty sections are left out. `maker` is what made the model, if no command did, and `use` the
    commands that use it.
    """
    parts = [
        f"# {title}",
        f"{about} Made by seqtool {__version__}.",
        *filter(None, sections),
        "Made by:",
        f"    {header.command or maker}",
    ]
    if use:
        parts += ["Use it:", "\n".join(f"    {command}" for command in use)]
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; nothing if it has no rows."""

    def row(cells: Sequence[str]) -> str:
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"

    lines = [row(columns), "| --- " * len(columns) + "|", *map(row, rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def scores_table(header: Header) -> str:
    """Return a table of the scores of a model."""
    rows = [(name.replace("_", " "), f"{value:.2f}") for name, value in header.scores.items()]
    return table(("score", "value"), rows)


def data_table(header: Header) -> str:
    """Return a table of all that a header records of the data."""
    rows = [(name.replace("_", " "), str(value)) for name, value in header.data.items()]
    return table(("data", ""), rows)
