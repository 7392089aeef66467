"""Models on workers: each process opens a model once, where it is on its machine.

A worker on another machine gets the model from Spark, as an archive that is unpacked there, unless
all machines have it at the same path.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core import checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Load = Callable[[Sequence[Path]], Any]


@dataclass(frozen=True)
class Model:
    """A model, or several as one, that can be sent to a worker as its paths.

    Attributes:
        paths: of the models; none for what needs no model.
        load: a function of a module that opens what is at such paths.
        stamp: differs once a model at these paths was replaced, so that a process that lives on
            opens it again; see `stamped`.
    """

    paths: tuple[str, ...]
    load: Load
    stamp: str = ""

    @property
    def opened(self) -> Any:
        """The model, which a process opens once."""
        return _open(self)

    def stamped(self) -> Model:
        """Return it with its stamp."""
        digest = hashlib.sha256()
        for path in self.paths:
            header = Path(path, checkpoint.HEADER)
            content = header.read_bytes() if header.is_file() else b""
            digest.update(f"{path}\0".encode() + content)
        return replace(self, stamp=digest.hexdigest()[:16])

    def ship(self, session: SparkSession, ship: bool | None) -> None:
        """Send it to the workers.

        Args:
            session: of Spark.
            ship: whether to; None: where the workers run on other machines.
        """
        from pyspark import SparkFiles

        context = session.sparkContext
        if ship is None:
            ship = not str(context.master).startswith("local[")
        if not ship:
            return
        shipped = {archive.rpartition("#")[2] for archive in context.listArchives}
        for path in self.paths:
            if Path(path).is_dir() and (name := self._name(path)) not in shipped:
                # workers fetch it whenever they begin, so it stays as long as Spark's own files
                place = Path(SparkFiles.getRootDirectory(), "seqtool", name)
                archive = shutil.make_archive(str(place), "zip", path)
                context.addArchive(f"{archive}#{name}")

    def _name(self, path: str) -> str:
        """Return the name under which Spark unpacks what is shipped."""
        return hashlib.sha256(f"{self.stamp}\0{path}".encode()).hexdigest()[:16]

    def find(self, path: str) -> Path:
        """Return where a model is on this machine."""
        from pyspark import SparkFiles, TaskContext

        # the driver reads its own; a worker may have another model at the same path
        if TaskContext.get() is not None:
            shipped = Path(SparkFiles.get(self._name(path)))
            if shipped.exists():
                return shipped
        return Path(path)


@cache
def _open(model: Model) -> Any:
    return model.load([model.find(path) for path in model.paths])
