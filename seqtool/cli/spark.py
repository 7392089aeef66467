"""`--engine spark`: its options, and `segment`, `tag` and `parse` by them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqtool.cli.options import MAX_SHOWN, note
from seqtool.core.errors import ConfigError, DataError, counted, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seqtool.parsing.annotation import Annotation
    from seqtool.spark.files import Corpus

PANEL = "Spark"
ENGINES = ("process", "spark")
FORMATS = ("conllu", "parquet")


@dataclass(frozen=True)
class SessionOptions:
    """The session of Spark."""

    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Spark runs: local[2], spark://host:7077, yarn; all cores of this machine "
            "if neither this nor spark-submit tells.",
            rich_help_panel=PANEL,
        ),
    ] = None
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting of Spark, as spark.executor.memory=4g; repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def check(self, *, is_used: bool) -> None:
        """Refuse options of Spark where something else does the work.

        Raises:
            ConfigError: there is one.
        """
        if is_used:
            return
        for item in fields(self):
            if item.name != "engine" and getattr(self, item.name):
                option = f"--{item.name.replace('_', '-')}"
                hint = f"add --engine spark, or drop {option}"
                raise ConfigError(f"{option} is for --engine spark", hint=hint)

    @staticmethod
    def refuse(**others: object) -> None:
        """Refuse options that are not for Spark: their names, with what was given.

        Raises:
            ConfigError: one is given.
        """
        if given := next((name for name, value in others.items() if value), None):
            option = f"--{given.replace('_', '-')}"
            raise ConfigError(
                f"{option} does not go with --engine spark", hint="leave out one of the two"
            )

    @contextmanager
    def session(self, *, compiles_once: bool = False) -> Iterator[SparkSession]:
        """Give the session; see `spark_session`."""
        from seqtool.spark.session import parse_conf, spark_session

        conf = parse_conf(self.spark_conf or [])
        with spark_session(self.master, conf, compiles_once=compiles_once) as session:
            yield session


@dataclass(frozen=True)
class SparkOptions(SessionOptions):
    """Whether Spark does the work, and what it reads."""

    engine: Annotated[
        str,
        typer.Option(
            metavar="|".join(ENGINES),
            help="spark: the workers of Apache Spark read, work and write; -o is a directory, and "
            "FILE whatever Spark reads.",
            rich_help_panel=PANEL,
        ),
    ] = ENGINES[0]
    text_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="FILE is Parquet, and this column holds texts, or CoNLL-U without --raw.",
            rich_help_panel=PANEL,
        ),
    ] = None
    shared_model: Annotated[
        bool,
        typer.Option(
            "--shared-model",
            help="All machines have the model at its path: it is not sent to them.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def is_spark(self) -> bool:
        """Whether Spark does the work.

        Raises:
            ConfigError: there is no such engine, or it is not Spark and an option is for Spark.
        """
        if self.engine not in ENGINES:
            hint = did_you_mean(self.engine, ENGINES)
            raise ConfigError(f"no engine is called {self.engine!r}", hint=hint)
        is_used = self.engine == "spark"
        self.check(is_used=is_used)
        return is_used

    @property
    def ship(self) -> bool | None:
        """See `shipping.Model.ship`."""
        return False if self.shared_model else None

    def corpus(self, files: Sequence[str] | None) -> Corpus:
        """Return what is read.

        Raises:
            ConfigError: no file is named.
        """
        from seqtool.spark.files import Corpus

        if not files:
            raise ConfigError("--engine spark reads no stdin", hint="name FILE")
        return Corpus(files, self.text_column)

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
        from seqtool.spark.files import BROKEN_FOLDER, annotate_files
        from seqtool.spark.workers import Work

        self.refuse(**others)
        if output == "-":
            raise ConfigError("--engine spark writes a directory", hint="name it with -o")
        if format_ is None:
            format_ = "parquet" if output.rstrip("/").endswith(".parquet") else annotation.form
        if format_ not in (known := (*FORMATS, annotation.form)):
            hint = f"choose one of: {', '.join(dict.fromkeys(known))}"
            raise ConfigError(f"--engine spark cannot write {format_}", hint=hint)
        corpus = self.corpus(files)
        # they are written apart in any case, and to the output where they are to pass through
        keeps = annotation.skip_invalid and annotation.keeps_invalid
        left_out: list[DataError] = []
        on_damaged = left_out.append if annotation.skip_invalid else None
        annotation = replace(annotation, skip_invalid=True, keeps_invalid=keeps)
        with self.session(compiles_once=True) as session:
            num_broken = annotate_files(
                session,
                corpus,
                Work.of(annotation, models),
                output,
                as_tokens=format_ == "parquet",
                invalid=invalid,
                ship=self.ship,
                on_damaged=on_damaged,
            )
        tell_left_out(left_out)
        if num_broken:
            where = invalid or posixpath.join(output, BROKEN_FOLDER)
            note(f"{counted(num_broken, 'broken sentence')} written to {where}, with file and line")


def tell_left_out(errors: Sequence[DataError]) -> None:
    """Say what is wrong with files that are left out, and how many they are."""
    for error in errors[:MAX_SHOWN]:
        note(f"left out: {error}")
    if errors:
        note(f"{counted(len(errors), 'file')} left out")
