"""Files and directories that are on disk whole or not at all, whenever a process is killed.

Nothing else in the package renames what it writes. New content is written beside the old, flushed
and renamed. A killed process leaves names that begin with a dot, which the next writer removes:

    .NAME.new-PID-X  NAME while it is written, locked by its writer
    .NAME.old        the directory NAME as it was, until what replaces it is whole
    .NAME.lock       held by the process that makes or continues the directory NAME

As long as there is a `.NAME.old`, what is in NAME is worthless without the record of a run. Locks
(flock) end with their process; where there are none, two writers are not kept apart. Readers change
nothing: they ask `present` or `versions` where the content is.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
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
MAX_OBJECT = 1 << 26  # bytes of a JSON file that is read


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name, replacing what is there, only when it is whole.

    A link is followed, and permissions stay. A pipe or a device is written to directly. An OSError
    names `path`.
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
    refuse_unwritable_name(text, path.name)
    replace_text(path, text)


def refuse_unwritable_name(text: str | Path, record: str) -> None:
    """Refuse a name, or a text with one, that `record`, a file in UTF-8, cannot hold.

    Raises:
        DataError: it is not UTF-8.
    """
    try:
        str(text).encode()
    except UnicodeEncodeError as error:
        name = ascii(str(text)[max(0, error.start - 40) : error.end + 40])
        what = f"{name} is not UTF-8, so {record} cannot hold it"
        raise DataError(what, hint="rename the file that is named so") from error


def to_json(content: Mapping[str, Any]) -> str:
    """Return a dictionary as readable JSON."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing what has it; a copy where there are no hard links."""

    def make(temporary: Path) -> None:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copy2(source, temporary)
            flush(temporary)

    with temporary_sibling(target, make) as temporary:
        temporary.replace(target)  # a link to the same file leaves both


@contextmanager
def temporary_sibling(path: Path, make: Callable[[Path], object] = Path.mkdir) -> Iterator[Path]:
    """Give a file or directory that `make` makes beside `path`, and remove it if it is still there.

    What killed processes have left of them is removed too.
    """
    _sweep(path)
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

    Where the directory's parent cannot be written, nothing is locked.

    Raises:
        OutputError: another process does so already.
    """
    shown, path = Path(path), _absolute(path)
    lock, handle = path.parent / f".{path.name}.lock", None
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with _naming(shown, path), deferred():
            while handle is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                # one that has just ended removes its lock, and the directory
                with suppress(FileNotFoundError):
                    os.close(os.open(lock, os.O_RDONLY | os.O_CREAT, 0o666))
                    if (handle := _lock(lock)) is None:
                        break
    except BlockingIOError as error:
        hint = "wait until it has ended, or choose another output"
        raise OutputError("another process is writing there", hint=hint, path=shown) from error
    except PermissionError:
        pass
    try:
        yield
    finally:
        with deferred(), suppress(OSError):
            if handle is not None:
                lock.unlink(missing_ok=True)
                os.close(handle)
            for folder in made:
                folder.rmdir()  # if nothing was made in it


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Give a temporary sibling of `path` to fill; on success it is flushed and renamed to `path`.

    A directory that was there is replaced, and its permissions stay; a link is followed. On any
    error, Ctrl-C included, the temporary directory is removed and what was there stays. An OSError
    (a full disk, no permission) names `path`.
    """
    shown, path = Path(path), _absolute(path)
    with _naming(shown, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        recover(path)
        make = partial(Path.mkdir, mode=0o700 if path.exists() else 0o777)
        with temporary_sibling(path, make) as temporary:
            yield temporary
            _copy_permissions(path, temporary)
            _flush_tree(temporary)
            with deferred():
                if path.exists():  # rename cannot replace a directory that is not empty
                    _set_aside(path)
                temporary.rename(path)
                flush(path.parent)
                drop_kept(path)


def refuse_input(target: str | Path, inputs: Iterable[str | Path]) -> None:
    """Refuse to write over what is read.

    Raises:
        OutputError: `target` is one of the files `inputs`.
    """
    path = Path(target)
    if path.is_file() and path.resolve() in [Path(name).resolve() for name in inputs]:
        what, hint = "is read, and would be replaced", "write to another file"
        raise OutputError(what, hint=hint, path=target)


@contextmanager
def replacing(path: str | Path) -> Iterator[None]:
    """Set the content of a directory aside while the block begins a run there.

    The block writes the record of the run last. On any error the content is put back; of a process
    that was killed, `recover` does it. After the block it is kept until `drop_kept` is told that
    the new model is whole. A run that is replaced while it keeps what was there before is not kept.

    Raises:
        OutputError: it is the current directory, and not empty.
    """
    shown, path = Path(path), _absolute(path)
    existed = path.exists()
    recover(path)
    if path.is_dir() and any(path.iterdir()):
        if path == Path.cwd():
            what = "the current directory cannot be replaced"
            raise OutputError(what, hint="name it from another directory", path=shown)
        with deferred():
            _set_aside(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # without it, what a first run leaves of itself needs --force
            _aside(path).mkdir()
        yield
        if not any(_aside(path).iterdir()):
            drop_kept(path)
    except BaseException:
        with deferred():
            (path / RECORD).unlink(missing_ok=True)
            recover(path)
            if not existed:
                with suppress(OSError):
                    path.rmdir()
        raise


def recover(path: Path) -> None:
    """Undo a replacement that was cut off, as only the one who writes may do."""
    path = _absolute(path)
    aside = _aside(path)
    with deferred():
        if aside.is_dir() and not (path / RECORD).is_file():
            for item in path.iterdir() if path.is_dir() else ():
                _remove(item)  # the directory itself may be a mount
            aside.rename(path) if any(aside.iterdir()) else aside.rmdir()
        _sweep(path)


def drop_kept(path: Path) -> None:
    """Remove what was set aside: the new content of the directory is whole."""
    path = _absolute(path)
    if _aside(path).is_dir():
        discard(_aside(path), _temporary_name(path))


def discard(path: Path, doomed: Path | None = None) -> None:
    """Remove a directory so that no half of it can ever be met under its name."""
    with deferred():
        _remove(path.rename(doomed or _temporary_name(path)))


def present(path: Path) -> Path:
    """Return where the content of a directory, or of a file in one, is: `path` or what is aside."""
    return versions(path)[0]


def versions(path: Path) -> list[Path]:
    """Return the directories that may hold the content of `path`, the newest first."""
    aside = _aside(_absolute(path))
    if aside.is_dir():
        return [path, aside] if (path / RECORD).is_file() else [aside]
    if path.exists() or path.parent.exists():
        return [path]
    return [present(path.parent) / path.name]


def is_leftover(name: str) -> bool:
    """Whether a file or directory of this name is what an interrupted replacement left."""
    return re.fullmatch(r"\..+\.(new-.*|lock|old)", name) is not None


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary with the SHA-256 of its own content."""
    plain = json.loads(json.dumps({key: content[key] for key in content if key != SEAL}))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {**plain, SEAL: hashlib.sha256(text.encode("ascii")).hexdigest()}


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a file that was `sealed`; a ValueError if a byte is not as it was."""
    content = read_object(path)
    if path.read_bytes() != to_json(sealed(content)).encode("utf-8"):
        raise ValueError("it is not as it was written")
    del content[SEAL]
    return content


def read_object(path: Path, max_bytes: int = MAX_OBJECT) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        ValueError: it is no plain file, too large, no JSON, no object, nested too deeply, or holds
            half of a surrogate pair, which no file can be named by.
        OSError: it is not there, or cannot be read.
    """
    data = read_file(path, max_bytes)
    try:
        content = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("holds no JSON object")
    if b"\\u" in data:
        json.dumps(content, ensure_ascii=False).encode()
    return content


def read_file(path: Path, max_bytes: int = MAX_OBJECT) -> bytes:
    """Return the content of a plain file.

    Raises:
        ValueError: it is no plain file, or larger than `max_bytes`.
        OSError: it is not there, or cannot be read.
    """
    _refuse_devices(path)
    if (size := path.stat().st_size) > max_bytes:
        raise ValueError(f"{size:,} bytes, where at most {max_bytes:,} are read")
    return path.read_bytes()


def _refuse_devices(path: Path) -> None:
    """Refuse a pipe or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("no plain file")


def sum_of(path: Path) -> str:
    """Return the SHA-256 of a plain file, in hexadecimal digits; a ValueError of another."""
    _refuse_devices(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    if os.name == "nt":  # no directory can be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _absolute(path: str | Path) -> Path:
    # `.` has no name to derive a sibling's from, and what a link leads to is replaced, not the link
    return Path(os.path.realpath(path))


def _copy_permissions(path: Path, temporary: Path) -> None:
    """Give what is about to replace `path` its permissions."""
    if path.exists():
        with suppress(OSError):  # a file system without permissions
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.old"


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}"


def _set_aside(path: Path) -> None:
    """Let a directory be that which is aside, or remove it if there is one already."""
    if not _aside(path).exists():
        path.rename(_aside(path))
    else:
        (path / RECORD).unlink(missing_ok=True)  # without it, no half is met
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what processes that are gone have left of what they wrote as `path`."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        with suppress(OSError):  # its writer has it locked, or another process sweeps too
            if (handle := _lock(left)) is not None:
                _remove(left)
                os.close(handle)


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
        is_temporary = str(error.filename).startswith(str(path.parent / f".{path.name}."))
        if error.errno is None or (error.filename and not is_temporary):
            raise
        raise OSError(error.errno, error.strerror, str(shown)) from error
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # safetensors' own error
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(shown)) from error
