"""Files and directories that are on disk whole or not at all, whenever a process is killed.

Nothing else in the package renames what it writes. New content is written under a temporary name,
flushed, and renamed. What a killed process leaves has one of these names, and is removed or taken
up by the next writer:

    .NAME.new-PID    NAME while process PID writes it
    .NAME.old        the directory NAME, for the moment between the two renames that replace it
    X/.replaced.old  all content of X; what stands beside it in X is worthless
    X/.kept.old      all content of X before; beside it is a run that has no whole model yet

Readers change nothing: they ask `present` or `versions` where the content is.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError

SEAL = "sha256"
MAX_OBJECT, MAX_DEPTH = 1 << 26, 100  # bytes and levels of a JSON file that is read

_UNDO, _KEPT = ".replaced.old", ".kept.old"
_ROW, _PIECE = 512, 1 << 20  # bytes that are added up, bytes that are looked at together


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name, replacing what is there, only when it is whole.

    A link is followed. A pipe or a device is written to directly. An OSError names `path`.
    """
    shown = Path(path)
    if shown.exists() and not shown.is_file():
        with shown.open("wb") as stream:
            yield stream
        return
    path = Path(os.path.realpath(shown))
    temporary = _temporary(path)
    with _naming(shown, temporary):
        try:
            _sweep(path)
            with temporary.open("wb") as stream:
                yield stream
            flush(temporary)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def replace_text(path: Path, text: str) -> None:
    """Write a text file, replacing it at once and whole."""
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a dictionary as readable JSON, replacing the file at once and whole."""
    replace_text(path, to_json(content))


def to_json(content: Mapping[str, Any]) -> str:
    """Return a dictionary as readable JSON."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing what has it; a copy where there are no hard links."""
    temporary = _temporary(target)
    _sweep(target)
    _link_or_copy(source, temporary)
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # replacing a link to the same file leaves both


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to fill; on success it is flushed and renamed to `path`.

    A directory that was there is replaced. On any error, Ctrl-C included, the temporary directory
    is removed and what was there stays; what a killed process left is removed the next time. An
    OSError (a full disk, no permission) names `path`.
    """
    shown, path = Path(path), _absolute(path)
    temporary = _temporary(path)
    with _naming(shown, temporary):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path)
            temporary.mkdir()
            yield temporary
            _flush_tree(temporary)
            if path.exists():
                # rename cannot replace a directory that is not empty: step aside first
                _remove(_aside(path))
                path.rename(_aside(path))
            temporary.rename(path)
            flush(path.parent)
            _remove(_aside(path))
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            recover(path)
            raise


def present(path: Path) -> Path:
    """Return `path`, or what was set aside when its replacement was cut off between two renames."""
    path = path if path.name else _absolute(path)
    return _aside(path) if not path.exists() and _aside(path).is_dir() else path


def recover(path: Path) -> None:
    """Finish or undo a replacement that was cut off, as only the one who writes may do."""
    path = _absolute(path)
    if present(path) != path:
        _aside(path).rename(path)
    _remove(_aside(path))
    _sweep(path)


def discard(path: Path) -> None:
    """Remove a directory so that no half of it can ever be met under its name."""
    _remove(_aside(path))
    doomed = _temporary(path)
    _remove(doomed)
    path.rename(doomed)
    _remove(doomed)


@contextmanager
def replacing(path: str | Path) -> Iterator[None]:
    """Set the content of a directory aside while the block begins to make it anew.

    On any error it is put back, and a directory that was not there is removed; of a process that
    was killed, `restore` does it. After the block it is kept until `drop_kept` is told that the new
    content is whole. The directory itself stays where it is: it may be a link, or the current one.
    """
    path = Path(path)
    existed = path.exists()
    path.mkdir(parents=True, exist_ok=True)
    restore(path)
    undo, temporary = path / _UNDO, _temporary(path / _UNDO)
    try:
        # files get a second name there, so that all of them are in one place at any moment
        items = [item for item in path.iterdir() if not _is_temporary(item.name)]
        temporary.mkdir()
        for item in items:
            _link_tree(item, temporary / item.name)
        temporary.rename(undo)
        _clear(path)
        yield
    except BaseException:
        restore(path)
        if not existed:
            path.rmdir()
        raise
    if (undo / _KEPT).is_dir():  # what it replaces was itself not yet whole
        (undo / _KEPT).rename(path / _KEPT)
        discard(undo)
    elif any(undo.iterdir()):
        undo.rename(path / _KEPT)
    else:
        discard(undo)


def restore(path: Path) -> None:
    """Put back what `replacing` set aside in a process that was killed before it was done."""
    for name in (_UNDO, _KEPT):
        _sweep(path / name)
    if (path / _UNDO).is_dir():
        _clear(path)
        for item in (path / _UNDO).iterdir():
            _link_tree(item, path / item.name)
        discard(path / _UNDO)


def drop_kept(path: Path) -> None:
    """Remove what `replacing` has kept: the new content of the directory is whole."""
    if (path / _KEPT).is_dir():
        discard(path / _KEPT)


def versions(path: Path) -> list[Path]:
    """Return the directories that may hold the content of `path`, the newest first."""
    path = present(path)
    newest = path / _UNDO if (path / _UNDO).is_dir() else path
    # where both are there, the one beside `.replaced.old` is being removed
    kept = [folder for folder in (newest / _KEPT, path / _KEPT) if folder.is_dir()]
    return [newest, *kept[:1]]


def is_leftover(name: str) -> bool:
    """Whether a file or directory of this name is what an interrupted replacement left."""
    return _is_temporary(name) or re.fullmatch(r"\..+\.old", name) is not None


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary with the SHA-256 of its own content."""
    plain = json.loads(json.dumps(content))
    return {**plain, SEAL: _seal(plain)}


def unseal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `sealed` was given; a ValueError if the sum was taken of something else."""
    plain = {key: value for key, value in content.items() if key != SEAL}
    if content.get(SEAL) != _seal(plain):
        raise ValueError("its content does not match its sum")
    return plain


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a file that was `sealed`; a ValueError if a byte is not as it was."""
    content = read_object(path)
    if path.read_bytes() != to_json(content).encode("utf-8"):  # blanks and line ends too
        raise ValueError("it is not as it was written")
    return unseal(content)


def read_object(path: Path, max_bytes: int = MAX_OBJECT) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        ValueError: it is no plain file, too large, no JSON, no object, or holds half of a
            surrogate pair, which no file can be named by.
        OSError: it is not there, or cannot be read.
    """
    text = read_file(path, max_bytes).decode("utf-8")
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("holds no JSON object")
    level: list[Any] = [content] if text.count("{") + text.count("[") > MAX_DEPTH else []
    for _ in range(MAX_DEPTH):  # what calls itself for each level must not be the first to notice
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    if level:
        raise ValueError("nested too deeply")
    if "\\ud" in text or "\\uD" in text:  # only then a half can be there
        json.dumps(content, ensure_ascii=False).encode()
    return content


def read_file(path: Path, max_bytes: int = MAX_OBJECT) -> bytes:
    """Return the content of a plain file.

    Raises:
        ValueError: it is no plain file, or larger than `max_bytes`.
        OSError: it is not there, or cannot be read.
    """
    if (size := _size_of(path)) > max_bytes:
        raise ValueError(f"{size:,} bytes, where at most {max_bytes:,} are read")
    return path.read_bytes()


def _size_of(path: Path) -> int:
    """Return the bytes of a plain file; a ValueError for a pipe or device, which may never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("no plain file")
    return status.st_size


def sum_of(path: Path) -> str:
    """Return the SHA-256 of a plain file, in hexadecimal digits; a ValueError of another."""
    _size_of(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def quick_sum_of(path: Path) -> str:
    """Return a sum of a file that is made as fast as memory is read, in hexadecimal digits.

    It is the SHA-256 of the sums of all rows of 512 bytes, added as 64-bit integers, so every
    changed bit and every row that is moved is found; a forgery is not.
    """
    digest = hashlib.sha256(path.stat().st_size.to_bytes(8, "little"))
    if path.stat().st_size:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        content = np.frombuffer(mapped, np.uint8)
        for start in range(0, len(content), _PIECE):
            piece = content[start : start + _PIECE]
            if len(piece) % _ROW:
                piece = np.pad(piece, (0, -len(piece) % _ROW))
            digest.update(piece.view("<u8").reshape(-1, _ROW // 8).sum(axis=1, dtype="<u8"))
    return digest.hexdigest()


def _seal(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # `.` has no name to derive a sibling's from


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.new-{os.getpid()}")


def _is_temporary(name: str) -> bool:
    return re.fullmatch(r"\..+\.new(-.*)?", name) is not None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Remove what stands beside `.replaced.old`, but for what is kept only there."""
    stays = {_UNDO} if (path / _UNDO / _KEPT).is_dir() else {_UNDO, _KEPT}
    for item in path.iterdir():
        if item.name not in stays:
            _remove(item)


def _link_tree(source: Path, target: Path) -> None:
    """Give a file, or all files of a directory, a second name."""
    if source.is_dir() and not source.is_symlink():
        target.mkdir()
        for item in source.iterdir():
            _link_tree(item, target / item.name)
    else:
        _link_or_copy(source, target)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)
        if not target.is_symlink():
            flush(target)


def _sweep(path: Path) -> None:
    """Remove the temporary siblings of `path` whose process is gone."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        if not _is_running(left.name.rpartition("-")[2]):
            with contextlib.suppress(OSError):  # another process may sweep too
                _remove(left)


def _is_running(number: str) -> bool:
    if not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        if os.name != "nt":  # there, signal 0 is Ctrl-C
            os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def flush(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    if os.name == "nt":  # no directory can be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_tree(directory: Path) -> None:
    # safetensors makes files that only their owner can read: follow the umask, as mkdir did
    mode = directory.stat().st_mode & 0o666
    for path in directory.rglob("*"):
        if path.is_file():
            path.chmod(mode)
        flush(path)
    flush(directory)


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Let an error of writing, within the block, name `path`."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    except OSError as error:
        # a write names no file, and the temporary one tells a user nothing
        is_known = error.filename and not str(error.filename).startswith(str(temporary))
        if error.errno is None or is_known:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
