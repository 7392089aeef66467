"""What is taken out of a downloaded archive, and nothing else of it."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from seqtool.core.errors import DownloadError

_CHUNK_BYTES = 1 << 20


def extract_member(archive: Path, member: str, path: Path, size: int) -> None:
    """Write one member of a zip file to `path`, and nothing anywhere else.

    Args:
        archive: the zip file.
        member: the name of the member.
        path: the file to write.
        size: the size of the member in bytes; another one is refused before anything is unpacked.

    Raises:
        DownloadError: it is no zip file, the member is missing or of another size, or any member is
            a link, or has an absolute path or a `..` in it.
    """
    hint = "the archive is not the expected one; do not unpack it by hand"
    try:
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if _is_unsafe(info):
                    raise DownloadError(f"unsafe member {info.filename!r}", hint=hint)
            info = opened.getinfo(member)
            if info.file_size != size:
                found = f"{info.file_size} bytes, expected {size}"
                raise DownloadError(f"{member} has {found}", hint=hint)
            with opened.open(info) as file:
                write_copy(file, path)
    except KeyError as error:
        raise DownloadError(f"the archive has no {member}", hint=hint) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"not a usable zip file: {error}", hint=hint) from error


def _is_unsafe(info: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(info.filename.replace("\\", "/"))
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    return path.is_absolute() or ".." in path.parts or ":" in info.filename or is_link


def write_copy(file: IO[bytes], path: Path) -> None:
    """Write the rest of an open file to `path`, and wait until the disk has it.

    Raises:
        OSError: with the path, which a write alone would not name.
    """
    with path.open("wb") as output:
        try:
            shutil.copyfileobj(file, output, _CHUNK_BYTES)
            output.flush()
            os.fsync(output.fileno())
        except OSError as error:
            error.filename = error.filename or str(path)
            raise
