"""pyarrow, for files of Parquet, which is an extra."""

from __future__ import annotations

from typing import Any

from seqtool.core.errors import ConfigError


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
