"""`--engine spark`: its session, which model it has, and `segment`, `tag` and `parse` by it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seqtool.cli.options import note, option
from seqtool.core.errors import ConfigError, counted, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seqtool.parsing.annotation import Annotation

PANEL = "Spark"
ENGINES = ("process", "spark")
FORMATS = ("conllu", "parquet")
NAME_BOTH = "name the files, and the directory with -o"


@dataclass(frozen=True)
class SessionOptions:
    """The session of Spark."""

    master: str | None = option(
        None, "Where Spark runs, as local[2]; all cores here if not given.", "URL", panel=PANEL
    )
    spark_conf: list[str] | None = option(
        None, "A setting of Spark; repeatable.", "KEY=VALUE", panel=PANEL
    )

    def check(self, *, is_used: bool) -> None:
        """Refuse options of Spark where something else does the work.

        Raises:
            ConfigError: there is one.
        """
        for name, value in vars(self).items():
            if value and name != "engine" and not is_used:
                option = f"--{name.replace('_', '-')}"
                hint = f"add --engine spark, or drop {option}"
                raise ConfigError(f"{option} is for --engine spark", hint=hint)

    @staticmethod
    def refuse(**others: object) -> None:
        """Refuse options that are not for Spark: their names, with what was given.

        Raises:
            ConfigError: one is given.
        """
        for name in (name for name, value in others.items() if value):
            what = f"--{name.replace('_', '-')} does not go with --engine spark"
            raise ConfigError(what, hint="leave out one of the two")

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Give the session; see `spark_session`."""
        from seqtool.spark.session import parse_conf, spark_session

        with spark_session(self.master, parse_conf(self.spark_conf or [])) as session:
            yield session


@dataclass(frozen=True)
class EngineOptions(SessionOptions):
    """Whether Spark does the work, and how it gets the model."""

    engine: str = option(
        ENGINES[0], "Whether Apache Spark reads, works and writes.", "|".join(ENGINES), panel=PANEL
    )
    shared_model: bool = option(
        False, "All machines have the model at its path: it is not sent to them.", panel=PANEL
    )

    def is_spark(self) -> bool:
        """Whether Spark does the work.

        Raises:
            ConfigError: there is no such engine, or it is not Spark and an option is for Spark.
        """
        if self.engine not in ENGINES:
            hint = did_you_mean(self.engine, ENGINES)
            raise ConfigError(f"no engine is called {self.engine!r}", hint=hint)
        self.check(is_used=self.engine == "spark")
        return self.engine == "spark"

    @property
    def ship(self) -> bool | None:
        """See `seqtool.spark.workers.Model.ship`."""
        return False if self.shared_model else None


@dataclass(frozen=True)
class SparkOptions(EngineOptions):
    """Spark in place of this process, for what annotates texts and treebanks."""

    text_column: str | None = option(
        None, "FILE is Parquet, and this column holds texts.", "NAME", panel=PANEL
    )

    def annotate(
        self,
        annotation: Annotation,
        files: Sequence[str] | None,
        models: Sequence[Path],
        output: str,
        *,
        format_: str | None,
        invalid: str | None,
        **others: object,
    ) -> None:
        """Annotate files on Spark; broken sentences are written apart in any case.

        Args:
            annotation: what is done.
            files: as they were named.
            models: the paths of the model.
            output: a directory.
            format_: what to write; by the name of the output when not given.
            invalid: a directory for broken sentences.
            others: options that are not for Spark, by their names, with what was given.

        Raises:
            ConfigError: options that do not go together.
        """
        from seqtool.spark.frames import BROKEN_FOLDER, Work, annotate_files

        self.refuse(**others)
        if not files or output == "-":
            raise ConfigError("--engine spark reads files and writes a directory", hint=NAME_BOTH)
        known = dict.fromkeys((*FORMATS, annotation.form))
        if format_ is None:
            format_ = "parquet" if output.rstrip("/").endswith(".parquet") else annotation.form
        if format_ not in known:
            hint = f"choose one of: {', '.join(known)}"
            raise ConfigError(f"--engine spark cannot write {format_}", hint=hint)
        # they are written apart in any case, and to the output where they are to pass through
        keeps = annotation.skip_invalid and annotation.keeps_invalid
        with self.session() as session:
            num_broken = annotate_files(
                session,
                files,
                Work.of(replace(annotation, keeps_invalid=keeps), models),
                output,
                column=self.text_column,
                as_tokens=format_ == "parquet",
                invalid=invalid,
                ship=self.ship,
            )
        if num_broken:
            where = invalid or posixpath.join(output, BROKEN_FOLDER)
            note(f"{counted(num_broken, 'broken sentence')} written to {where}, with file and line")
