"""pyarrow, for files of Parquet, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqtool.core.errors import ConfigError

_ROWS = 1 << 10  # that are read at once at most


def load_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its module of Parquet.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "a .parquet file needs pyarrow, which is not installed",
            hint="install it: pip install 'seqtool[parquet]', or take another format",
        ) from error
    return pyarrow, pyarrow.parquet


def column_batches(file: Any, name: str, column: str, max_bytes: int) -> Iterator[Any]:
    """Give the arrays of a column, of about `max_bytes` at most, or of one value.

    A dictionary page has each different value once, and a batch one for each row: of a few hundred
    bytes on disk it may have gigabytes.

    Args:
        file: the open file.
        name: its path.
        column: the name of the column.
        max_bytes: how many bytes of values are read at once.
    """
    with open(name, "rb") as raw:
        for group in range(file.num_row_groups):
            rows, about = _ROWS, file.metadata.row_group(group)
            chunks = map(about.column, range(about.num_columns))
            chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
            offset = chunk.data_page_offset
            if chunk.dictionary_page_offset:
                offset = min(offset, chunk.dictionary_page_offset)
            raw.seek(offset)
            if size := _dictionary_size(raw.read(8)):
                rows = max(1, min(_ROWS, max_bytes // size))
            for batch in file.iter_batches(rows, row_groups=[group], columns=[column]):
                yield batch.column(0)


def _dictionary_size(header: bytes) -> int:
    """Return the bytes of a dictionary page, unpacked; 0 if the page is of another kind.

    The header is one of Thrift's compact protocol: field 1 is the kind, field 2 the size.
    """
    if not header.startswith(b"\x15\x04\x15"):
        return 0
    size = 0
    for place, byte in enumerate(header[3:]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return size >> 1  # zigzag
