"""What every worker needs: a model that a process opens once, and Arrow rows out of a frame.

A worker on another machine gets the model from Spark, as an archive that is unpacked there, unless
all machines have it at the same path.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, SeqtoolError
from seqtool.spark.session import WorkerError, without_pandas_warning

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable["pa.RecordBatch"]


@dataclass(frozen=True)
class Model:
    """A model, or several as one, that can be sent to a worker as its paths.

    Attributes:
        paths: of the models; none for what needs no model.
        load: a function of a module that opens what is at such paths.
        stamp: differs once a model at these paths was replaced, so that a process that lives on
            opens it again.
    """

    paths: tuple[str, ...]
    load: Callable[[Sequence[Path]], Any]
    stamp: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256()
        for path in self.paths:
            header = Path(path, checkpoint.HEADER)
            digest.update(f"{path}\0".encode() + (header.read_bytes() if header.is_file() else b""))
        object.__setattr__(self, "stamp", digest.hexdigest()[:16])

    @property
    def opened(self) -> Any:
        """The model, which a process opens once."""
        return _open(self)

    def ship(self, session: SparkSession, ship: bool | None) -> None:
        """Send it to the workers; when `ship` is None, if they run on other machines."""
        from pyspark import SparkFiles

        context = session.sparkContext
        if ship is None:
            ship = not is_local(session)
        shipped = {archive.rpartition("#")[2] for archive in context.listArchives} if ship else ()
        for number, path in enumerate(self.paths if ship else ()):
            if Path(path).is_dir() and (name := f"{self.stamp}-{number}") not in shipped:
                # workers fetch it whenever they begin, so it stays as long as Spark's own files
                place = Path(SparkFiles.getRootDirectory(), "seqtool", name)
                context.addArchive(f"{shutil.make_archive(str(place), 'zip', path)}#{name}")

    def find(self, number: int) -> Path:
        """Return where the model of this number is on this machine."""
        from pyspark import SparkFiles, TaskContext

        # the driver reads its own; a worker may have another model at the same path
        if TaskContext.get() is not None:
            shipped = Path(SparkFiles.get(f"{self.stamp}-{number}"))
            if shipped.exists():
                return shipped
        return Path(self.paths[number])


@cache
def _open(model: Model) -> Any:
    return model.load([model.find(number) for number in range(len(model.paths))])


def is_local(session: SparkSession) -> bool:
    """Whether the workers run on this machine."""
    return str(session.sparkContext.master).startswith("local[")


def mapped(
    frame: DataFrame,
    make: Callable[[Batches], Iterator[pa.RecordBatch]],
    names: Mapping[str, str],
    kept: Sequence[Any] = (),
) -> DataFrame:
    """Return what workers make of the Arrow batches of a frame, those of one task after another.

    Args:
        frame: any.
        make: called in a worker; a user's error that it raises reaches the driver.
        names: of the columns that it makes, with their types.
        kept: fields of Spark, which stand before these.
    """
    from pyspark.sql.types import StructType

    schema = StructType(list(kept))
    for name, kind in names.items():
        schema = schema.add(name, kind)

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from make(batches)
        except SeqtoolError as error:
            raise WorkerError(error) from error

    with without_pandas_warning():
        return frame.mapInArrow(work, schema)


def _schema(names: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    kinds = {"string": pa.string(), "integer": pa.int32(), "long": pa.int64()}
    kinds["double"] = pa.float64()
    return pa.schema({name: kinds[kind] for name, kind in names.items()})


def record_batch(columns: Mapping[str, Any], names: Mapping[str, str]) -> pa.RecordBatch:
    """Return columns as Spark takes them, with the types of `names`."""
    import pyarrow as pa

    schema = _schema(names)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_of_rows(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows likewise; what a row has not is null."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(list(rows), schema=_schema(names))


def beside(batch: pa.RecordBatch, column: str, rows: Any, made: pa.RecordBatch) -> pa.RecordBatch:
    """Return what was made of a column, with the other columns before it.

    Args:
        batch: of a frame.
        column: the one of texts, which is left out.
        rows: of each row of `made`, the one of `batch` that it came from.
        made: the results.
    """
    import pyarrow as pa

    others = batch.select([name for name in batch.schema.names if name != column])
    chosen = others.take(pa.array(rows, pa.int64()))
    return pa.RecordBatch.from_arrays(
        [*chosen.columns, *made.columns], names=[*chosen.schema.names, *made.schema.names]
    )


def check_texts(frame: DataFrame, column: str) -> None:
    """Refuse a column that holds no texts; Spark says if there is none of that name.

    Raises:
        ConfigError: it holds something else.
    """
    kind = frame.select(column).dtypes[0][1]
    if kind != "string":
        what = f"the column {column!r} is {kind}, but must be string"
        raise ConfigError(what, hint="name a column of texts")


def other_fields(frame: DataFrame, column: str) -> list[Any]:
    """Return the fields of the columns beside one."""
    return [field for field in frame.schema.fields if field.name != column]
