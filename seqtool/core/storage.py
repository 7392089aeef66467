"""Files and directories that are on disk whole or not at all, whenever a process is killed.

Nothing else in the package renames what it writes. New content is written beside the old, flushed
and renamed. What a killed process leaves is removed or taken up by the next one that writes there:

    .NAME.new-PID-X  NAME while it is written
    .NAME.old        the directory NAME, for the moment between the two renames that replace it
    .NAME.lock       held by the process that makes or continues the directory NAME
    X/.kept.old      the content of X before a run that has no whole model yet; as long as X has no
                     record of a run, what stands beside it is worthless

Locks (flock) end with their process, in other containers too. On a file system without them, what
was left stays, and two writers are not kept apart. Readers change nothing: they ask `present` or
`versions` where the content is.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import mmap
import os
import re
import secrets
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from seqtool.core.errors import DataError, OutputError
from seqtool.core.signals import deferred

if sys.platform != "win32":
    import fcntl

SEAL = "sha256"
RECORD = "run.json"  # of a run that has begun
MAX_DIGITS = 300  # of a whole number: one that is a float, too
MAX_OBJECT, MAX_DEPTH = 1 << 26, 100  # bytes and levels of a JSON file that is read

_KEPT, _TEMPORARY = ".kept.old", re.compile(r"\..+\.(new(-.*)?|lock)")
_ROW, _PIECE = 512, 1 << 20  # bytes that are added up, bytes that are looked at together
_LET_GO = 1 << 25  # bytes of a mapped file, after which those that were read are let go


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name, replacing what is there, only when it is whole.

    A link is followed. Permissions and, where one may, the owner of what is replaced stay. A pipe
    or a device is written to directly. An OSError names `path`.
    """
    shown = Path(path)
    if shown.exists() and not shown.is_file():
        with _naming(shown, shown), shown.open("wb") as stream:
            yield stream
        return
    path = _absolute(shown)
    # nobody is to read in the meantime what they could not read before
    make = partial(Path.touch, mode=0o600 if path.exists() else 0o666)
    with _naming(shown, path), temporary_sibling(path, make) as temporary:
        with temporary.open("wb") as stream:
            yield stream
        flush(temporary)
        _copy_permissions(path, temporary)
        temporary.replace(path)


def replace_text(path: Path, text: str) -> None:
    """Write a text file, replacing it at once and whole."""
    with atomic_file(path) as stream:
        stream.write(text.encode("utf-8"))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a dictionary as readable JSON, replacing the file at once and whole.

    Raises:
        DataError: a text, such as the name of a file, that is not UTF-8.
    """
    text = to_json(content)
    try:
        replace_text(path, text)
    except UnicodeEncodeError as error:
        line = text[text.rfind("\n", 0, error.start) + 1 : text.find("\n", error.start)]
        refuse_unwritable_name(line.strip(" ,"), path.name)


def refuse_unwritable_name(path: str | Path, record: str) -> None:
    """Refuse a file whose name `record`, a file in UTF-8, cannot hold.

    Raises:
        DataError: it is not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        what = f"{str(path)!r} is not UTF-8, so {record} cannot hold it"
        raise DataError(what, hint="rename the file that is named so") from error


def to_json(content: Mapping[str, Any]) -> str:
    """Return a dictionary as readable JSON."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing what has it; a copy where there are no hard links."""
    with temporary_sibling(target, partial(_link_tree, source)) as temporary:
        temporary.replace(target)  # a link to the same file leaves both


@contextmanager
def temporary_sibling(path: Path, make: Callable[[Path], object] = Path.mkdir) -> Iterator[Path]:
    """Give a file or directory that `make` makes beside `path`, and remove it if it is still there.

    What killed processes have left of them is removed too.
    """
    _sweep(path.parent, path.name)
    temporary, handle = _temporary_name(path), None
    try:
        with deferred():
            make(temporary)
            with suppress(OSError):  # at worst nobody removes it after a kill
                handle = _lock(temporary)
        yield temporary
    finally:
        with deferred():
            _remove(temporary)
            if handle is not None:
                os.close(handle)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Let no other process make or continue a directory within the block.

    An OutputError tells which one does so already. What a killed process set aside is put back.
    Where the directory's parent cannot be written, the directory itself is locked.
    """
    shown, path = Path(path), _absolute(path)
    lock = path.with_name(f".{path.name}.lock") if path.name else path
    made = [folder for folder in path.parents if not folder.exists()]
    handle = None
    try:
        with _naming(shown, path), deferred():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = _take(lock, path, shown)
            if not path.exists() and _aside(path).is_dir():
                _aside(path).rename(path)
        yield
    finally:
        with deferred(), suppress(OSError):
            if handle is not None:
                lock.unlink(missing_ok=True)  # a directory that is locked itself stays
                os.close(handle)
            for folder in made:
                folder.rmdir()  # if nothing was made in it


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to fill; on success it is flushed and renamed to `path`.

    A directory that was there is replaced, and its permissions stay; a link is followed. On any
    error, Ctrl-C included, the temporary directory is removed and what was there stays; what a
    killed process left is removed the next time. An OSError (a full disk, no permission) names
    `path`.
    """
    shown, path = Path(path), _absolute(path)
    with _naming(shown, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            make = partial(Path.mkdir, mode=0o700 if path.exists() else 0o777)
            with temporary_sibling(path, make) as temporary:
                yield temporary
                _copy_permissions(path, temporary)
                _flush_tree(temporary)
                with deferred():
                    if path.exists():
                        # rename cannot replace a directory that is not empty: step aside first
                        _remove(_aside(path))
                        path.rename(_aside(path))
                    temporary.rename(path)
                    flush(path.parent)
        finally:
            recover(path)


def refuse_input(target: str | Path, inputs: Iterable[str | Path]) -> None:
    """Refuse to write over what is read.

    Raises:
        OutputError: `target` is one of the files `inputs`.
    """
    path = Path(target)
    if path.is_file() and path.resolve() in [Path(name).resolve() for name in inputs]:
        what, hint = "is read, and would be replaced", "write to another file"
        raise OutputError(what, hint=hint, path=target)


def present(path: Path) -> Path:
    """Return `path`, or what was set aside when its replacement was cut off between two renames.

    So too for a file in such a directory.
    """
    path = path if path.name else _absolute(path)
    if path.exists() or not path.name:
        return path
    if (aside := _aside(_absolute(path))).is_dir():
        return aside
    return path if path.parent.exists() else present(path.parent) / path.name


def recover(path: Path) -> None:
    """Finish or undo a replacement that was cut off, as only the one who writes may do."""
    path = _absolute(path)
    with deferred():
        if not path.exists() and _aside(path).is_dir():
            _aside(path).rename(path)
        _remove(_aside(path))
        _sweep(path.parent, path.name)


def discard(path: Path) -> None:
    """Remove a directory so that no half of it can ever be met under its name."""
    with deferred():
        _remove(_aside(path))
        doomed = _temporary_name(path)
        path.rename(doomed)
        _remove(doomed)


@contextmanager
def replacing(path: str | Path) -> Iterator[None]:
    """Keep the content of a directory while the block begins a run there, and writes its record.

    The record comes last. On any error the content is put back, and a directory that was not there
    is removed; of a process that was killed, `restore` does it. After the block it is kept until
    `drop_kept` is told that the new model is whole. A run that is replaced while it keeps what was
    there before is not kept itself. The directory may be a link, a mount or the current one.
    """
    path = Path(path)
    existed = path.exists()
    path.mkdir(parents=True, exist_ok=True)
    restore(path)
    kept = path / _KEPT
    try:
        with deferred():
            if not kept.is_dir():
                with temporary_sibling(kept) as temporary:
                    _link_content(path, temporary)
                    temporary.rename(kept)
            _clear(path)
        yield
        if not any(kept.iterdir()):
            drop_kept(path)
    except BaseException:
        with deferred():
            if kept.is_dir():
                (path / RECORD).unlink(missing_ok=True)
            restore(path)
            if not existed:
                with suppress(OSError):
                    path.rmdir()
        raise


def restore(path: Path) -> None:
    """Put back what `replacing` kept in a process that was killed before its run had begun."""
    with deferred():
        _sweep(path)
        kept = path / _KEPT
        if kept.is_dir() and not (path / RECORD).exists():
            _clear(path)
            _link_content(kept, path)
            discard(kept)


def drop_kept(path: Path) -> None:
    """Remove what `replacing` has kept: the new content of the directory is whole."""
    if (path / _KEPT).is_dir():
        discard(path / _KEPT)


def versions(path: Path) -> list[Path]:
    """Return the directories that may hold the content of `path`, the newest first."""
    path = present(path)
    if not (path / _KEPT).is_dir():
        return [path]
    return [path, path / _KEPT] if (path / RECORD).is_file() else [path / _KEPT]


def is_leftover(name: str) -> bool:
    """Whether a file or directory of this name is what an interrupted replacement left."""
    return _TEMPORARY.fullmatch(name) is not None or re.fullmatch(r"\..+\.old", name) is not None


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
            surrogate pair, which no file can be named by, or a whole number of
            more than `MAX_DIGITS` digits.
        OSError: it is not there, or cannot be read.
    """
    data = read_file(path, max_bytes)
    try:
        # Python's own reader of numbers is faster
        is_long = re.search(rb"[0-9]{%d}" % MAX_DIGITS, data)
        content = json.loads(data.decode("utf-8"), parse_int=_whole_number if is_long else None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("holds no JSON object")
    level: list[Any] = [content] if data.count(b"{") + data.count(b"[") > MAX_DEPTH else []
    for _ in range(MAX_DEPTH):  # what calls itself for each level must not be the first to notice
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    if level:
        raise ValueError("nested too deeply")
    if b"\\" in data and re.search(rb"\\u[dD]", data):  # only then a half can be there
        json.dumps(content, ensure_ascii=False).encode()
    return content


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


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
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
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
    import numpy as np  # not every command that finds files needs it

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
            if start % _LET_GO == 0:
                let_go(mapped)
    return digest.hexdigest()


def let_go(mapped: mmap.mmap) -> None:
    """Let the pages of a mapped file go that were read: else they count as memory of the process.

    They stay in the system's memory as long as there is room.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _seal(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _absolute(path: str | Path) -> Path:
    # `.` has no name to derive a sibling's from, and what a link leads to is replaced, not the link
    return Path(os.path.realpath(path))


def _copy_permissions(path: Path, temporary: Path) -> None:
    """Give what is about to replace `path` its permissions, and its owner where one may."""
    if not path.exists():
        return
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if sys.platform != "win32":
        try:
            os.chown(temporary, status.st_uid, status.st_gid)
        except OSError:
            try:
                os.chown(temporary, -1, status.st_gid)
            except OSError:  # what its group might do is not for another group
                mode &= ~stat.S_IRWXG
    with suppress(OSError):  # a file system without permissions
        temporary.chmod(mode)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _content(path: Path) -> list[Path]:
    """Return what a directory holds beside what is kept; the record of a run, if any, first."""
    found = [item for item in path.iterdir() if item.name != _KEPT]
    found = [item for item in found if not _TEMPORARY.fullmatch(item.name)]
    return sorted(found, key=lambda item: item.name != RECORD)


def _clear(path: Path) -> None:
    """Remove what stands beside what is kept; without a record it is worthless at once."""
    for item in _content(path):
        _remove(item)


def _link_content(source: Path, target: Path) -> None:
    """Give the content of a directory a second place; with its record it is all there."""
    for item in reversed(_content(source)):
        _link_tree(item, target / item.name)


def _link_tree(source: Path, target: Path) -> None:
    """Give a file, or all files of a directory, a second name; a copy where that cannot be had."""
    if source.is_dir() and not source.is_symlink():
        target.mkdir()
        for item in source.iterdir():
            _link_tree(item, target / item.name)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
        if not target.is_symlink():
            flush(target)


def _sweep(folder: Path, name: str = "") -> None:
    """Remove what processes that are gone have left in a directory, of a name or of all."""
    for left in folder.glob(f".{glob.escape(name) or '*'}.new-*"):
        with suppress(OSError):  # its writer has it locked, or another process sweeps too
            if (handle := _lock(left)) is not None:
                _remove(left)
                os.close(handle)


def _take(lock: Path, path: Path, shown: Path) -> int | None:
    """Return the handle of a lock, None where there are no locks; an OutputError if it is held."""
    if sys.platform == "win32":
        return None
    while True:
        try:
            if lock != path:
                os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
            handle = _lock(lock)
        except FileNotFoundError:  # one that has just ended removes its lock, and the directory
            if lock == path:  # what cannot be written is told where it is written
                return None
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        except BlockingIOError:
            break
        except OSError as error:
            if lock == path or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            lock = path
            continue
        if handle is not None and lock != path:
            with suppress(OSError):
                lock.write_text(f"{os.getpid()} {socket.gethostname()}\n")
        return handle
    found = None
    with suppress(OSError):  # a directory holds no number
        found = re.fullmatch(rb"(\d+) ([\w.-]+)\n", lock.read_bytes()[:300])
    who = "another process"
    if found is not None:
        number, host = found[1].decode(), found[2].decode()
        who = f"process {number}" + (f" on {host}" if host != socket.gethostname() else "")
    hint = "wait until it has ended, or choose another output"
    raise OutputError(f"{who} is writing there", hint=hint, path=shown)


def _lock(path: Path) -> int | None:
    """Return the handle of a file or directory, locked until it is closed; None without locks.

    Raises:
        BlockingIOError: another has locked it.
        FileNotFoundError: it is not, or no longer, there.
    """
    if sys.platform == "win32":  # what is open there cannot be renamed
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(path.stat(), os.fstat(handle)):
            raise FileNotFoundError(errno.ENOENT, "is another file now", str(path))
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError | FileNotFoundError):
            raise
        return None
    return handle


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
def _naming(shown: Path, path: Path) -> Iterator[None]:
    """Let an error of writing `path`, within the block, name it as it is `shown`."""
    try:
        yield
    except OSError as error:
        # a write names no file, and the temporary one tells a user nothing
        own = str(path.with_name(f".{path.name}.")) if path.name else str(path)
        is_known = error.filename and not str(error.filename).startswith(own)
        if error.errno is None or is_known:
            raise
        raise OSError(error.errno, error.strerror, str(shown)) from error
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        # known by its name, as not every command loads that library
        if type(error).__name__ != "SafetensorError" or number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(shown)) from error
