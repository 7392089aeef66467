"""One directory format for every model: `model.json`, vocabulary or tokenizer, weights.

    model.json             header: format version, kind, configuration, scores, sums of the files
    vocabulary.json        or tokenizer.model
    weights.safetensors    every array of the model
    README.md              a model card
    log.jsonl, last/       left by training: its log, and the state that --resume continues from

Every directory is written to a temporary sibling, flushed and renamed, so that a model is there
whole or not at all. Loading parses JSON and safetensors and never executes code from a file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seqtool
from seqtool.errors import ModelError, OutputError
from seqtool.registry import Registry

FORMAT_VERSION = 1
HEADER = "model.json"
WEIGHTS = "weights.safetensors"

LOADERS: Registry[Callable[..., Any]] = Registry(
    "kind of model", {"neural-lm": "seqtool.neural_lm.model:load_model"}
)


@dataclass(frozen=True)
class Header:
    """What `model.json` holds.

    Attributes:
        kind: which loader reads the model ("neural-lm").
        config: the resolved configuration.
        tokenizer: what `load_tokenizer` needs beside the files (unit, lowercase).
        scores: what was measured ("valid_perplexity", ...).
        data: where the training text came from and how large it was.
        command: the command that made the model.
        num_parameters: trained numbers, tied ones counted once.
        versions: seqtool, and the libraries that matter for the numbers.
        files: name -> {"bytes", "sha256"} of every other file of the model.
    """

    kind: str
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    scores: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    command: str = ""
    num_parameters: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a dictionary as readable JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to fill; on success it is flushed and renamed to `path`.

    A directory that was there is replaced. On any error, Ctrl-C included, the temporary directory
    is removed and what was there stays.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new-{os.getpid()}")
    replaced = path.with_name(f".{path.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _flush(file)
        _flush(temporary)
        if path.exists():
            # rename cannot replace a directory that is not empty: step aside first
            shutil.rmtree(replaced, ignore_errors=True)
            path.rename(replaced)
        temporary.rename(path)
        _flush(path.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def recover(path: Path) -> None:
    """Put back a directory whose replacement was cut off between the two renames."""
    replaced = path.with_name(f".{path.name}.old")
    if not path.exists() and replaced.is_dir():
        replaced.rename(path)


def save(path: str | Path, header: Header, fill: Callable[[Path], None]) -> None:
    """Write a model directory.

    Args:
        path: the directory, replaced if it is there.
        header: all of `model.json` but the sums of the files and seqtool's version.
        fill: writes every other file of the model into the directory it is given.
    """
    with atomic_directory(path) as directory:
        fill(directory)
        _write_header(directory, header, sorted(file.name for file in directory.iterdir()))


def amend(path: str | Path, header: Header, texts: Mapping[str, str]) -> None:
    """Replace text files of a finished model and its header, as when final scores are known.

    The header comes last, and each file is replaced whole.
    """
    directory = Path(path)
    for name, text in texts.items():
        temporary = directory / f".{name}.new"
        temporary.write_text(text, encoding="utf-8")
        _flush(temporary)
        temporary.replace(directory / name)
    _write_header(directory, header, sorted({*header.files, *texts}))


def _write_header(directory: Path, header: Header, names: list[str]) -> None:
    files = {
        name: {"bytes": (directory / name).stat().st_size, "sha256": _sha256(directory / name)}
        for name in names
    }
    versions = {**header.versions, "seqtool": seqtool.__version__}
    complete = dataclasses.replace(header, files=files, versions=versions)
    temporary = directory / f".{HEADER}.new"
    write_json(temporary, {"format_version": FORMAT_VERSION, **dataclasses.asdict(complete)})
    _flush(temporary)
    temporary.replace(directory / HEADER)


def promote(source: Path, destination: Path) -> None:
    """Make the model in `source` that of `destination`, which may hold other files, and drop it.

    The header comes last and names the sums of the other files, so that a promotion cut off
    halfway is told from a whole one, and `source` stays until all is done.
    """
    names = sorted(read_header(source).files)
    for name in [*names, HEADER]:
        temporary = destination / f".{name}.new"
        temporary.unlink(missing_ok=True)
        try:
            os.link(source / name, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(source / name, temporary)
            _flush(temporary)
        temporary.replace(destination / name)
    _flush(destination)
    shutil.rmtree(source)


def find(path: str | Path) -> Path:
    """Return the directory that holds the model: `path`, or `path/best` while it is in training.

    Raises:
        ModelError: there is no model; the hint says what to do.
    """
    path = Path(path)
    if not path.exists():
        raise ModelError("no such model", hint=_known_models(path), path=path)
    if not path.is_dir():
        raise ModelError("not a model directory", hint=_known_models(path), path=path)
    best = path / "best"
    recover(best)
    if (best / HEADER).is_file():  # training goes on, or stopped before its end
        return best
    if (path / HEADER).is_file():
        return path
    if (path / "last").is_dir():
        raise ModelError(
            "training has not reached its first validation, so there is no model yet",
            hint=f"continue with: seqtool train-lm --resume -o {path}",
            path=path,
        )
    raise ModelError(f"not a model directory: it has no {HEADER}", hint=_known_models(path), path=path)


def _known_models(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    known = sorted(str(header.parent) for header in folder.glob(f"*/{HEADER}"))
    if known:
        return f"models found there: {', '.join(known[:5])}"
    return "train one, for example with: seqtool train-lm"


def read_header(path: str | Path) -> Header:
    """Read `model.json` of a model directory.

    Raises:
        ModelError: no model, a damaged header, or a newer format version.
    """
    directory = find(path)
    header_path = directory / HEADER
    damaged = ModelError("damaged model header", hint="train the model again", path=header_path)
    try:
        content = json.loads(header_path.read_text(encoding="utf-8"))
        version = content.pop("format_version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged from error
    if not isinstance(version, int) or isinstance(version, bool):
        raise damaged
    if version > FORMAT_VERSION:
        made_by = content.get("versions")
        made_by = made_by.get("seqtool", "a newer seqtool") if isinstance(made_by, dict) else "?"
        raise ModelError(
            f"model format {version} is newer than this seqtool reads ({FORMAT_VERSION}); "
            f"it was made by seqtool {made_by}",
            hint="pip install --upgrade seqtool",
            path=header_path,
        )
    known = {item.name for item in dataclasses.fields(Header)}
    if not known >= content.keys() or not {"kind", "config", "tokenizer"} <= content.keys():
        raise damaged
    header = Header(**content)
    for item, kind in (
        (header.kind, str),
        (header.config, dict),
        (header.tokenizer, dict),
        (header.files, dict),
        (header.scores, dict),
    ):
        if not isinstance(item, kind):
            raise damaged
    return header


def verify(directory: Path, header: Header) -> None:
    """Check every file of the model against the size and SHA-256 that the header records.

    Raises:
        ModelError: a file is missing, cut off or changed.
    """
    for name, recorded in header.files.items():
        path = directory / name
        hint = "copy the model again, or train it again"
        if not path.is_file():
            raise ModelError("this file of the model is missing", hint=hint, path=path)
        size = path.stat().st_size
        if size != recorded.get("bytes"):
            raise ModelError(
                f"damaged: {size} bytes instead of {recorded.get('bytes')}", hint=hint, path=path
            )
        if _sha256(path) != recorded.get("sha256"):
            raise ModelError(
                "damaged: its content does not match the sum in model.json", hint=hint, path=path
            )


def load(path: str | Path, *, device: str = "cpu") -> Any:
    """Open any model.

    Args:
        path: a model directory.
        device: where the arrays go ("cpu", "cuda", "mps").

    Raises:
        ModelError: the model is missing, damaged, of another kind or of a newer version.
    """
    header = read_header(path)
    if header.kind not in LOADERS:
        raise ModelError(
            f"a model of kind {header.kind!r} is unknown to this seqtool",
            hint="pip install --upgrade seqtool",
            path=path,
        )
    return LOADERS[header.kind](find(path), header, device=device)


def check_output(path: str | Path, *, force: bool) -> None:
    """Refuse an output directory that exists, unless `force`; with it, only our own is replaced.

    Raises:
        OutputError: it exists and may not be replaced.
    """
    path = Path(path)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    ours = path.is_dir() and any(
        (path / name).exists() for name in (HEADER, "last", "best", "corpus", "log.jsonl")
    )
    if not ours:
        raise OutputError(
            "exists and is no model of seqtool, so it will not be replaced",
            hint="choose another output with -o",
            path=path,
        )
    if not force:
        raise OutputError(
            "exists already",
            hint="continue it with --resume, replace it with --force, or choose another with -o",
            path=path,
        )
