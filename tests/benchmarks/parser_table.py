"""All parsers over one treebank in one table: scores, speed, training time, size.

    make parsers TRAIN=train.conllu DEV=dev.conllu [OUT=runs/parsers] [ROWS=fast,graph] [SEEDS=3]
    PYTHONPATH=tests python -m benchmarks.parser_table TRAIN DEV [--out DIR] [--rows LIST] ...

A row is trained, and its figures are measured, once: they are kept in OUT, and the same command
goes on where it was stopped or killed, also within a training. Rows that others consist of are
trained with them. What takes less than 15 minutes to train is trained with several seeds, and the
table has the mean and, in brackets, the distance between the best and the worst; the rest is
trained once.

Scores are those of the CoNLL 2018 scorer on DEV, which also chose the epochs, by gold words and
tags. Speed is on one core, pinned where the system can, in words per second of processor time: from
the opened file to the written one, with the model as it was loaded, and by parsing alone, when all
words were met. OUT/parsers.md is the table, OUT/parsers.json has all numbers.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.tables import (
    chosen_rows,
    exit_code,
    kept_figures,
    on_one_core,
    say,
    seconds_of,
    speed,
    write_table,
)

from seqtool.core import checkpoint, storage
from seqtool.parsing.parser.config import PRESETS
from seqtool.parsing.parser.parser import Parser
from seqtool.parsing.parser.train import train_parser
from seqtool.training import hardware
from seqtool.treebank.alignment import read_annotation
from seqtool.treebank.conllu import read_batches, read_conllu, write_conllu
from seqtool.treebank.evaluation import score_annotation

SHORT = 15.0  # minutes; what takes longer is trained with one seed
LEAST_WORDS = 20_000  # DEV is repeated until it has them, for speed
REPEATS = 3  # of which the fastest counts


@dataclass(frozen=True)
class Row:
    """One kind of parser.

    Attributes:
        name: in OUT and in ROWS.
        title: in the table.
        preset: of its settings; none of a vote.
        settings: others than the preset's, dotted.
        beam: of its usual search; 1 where it has none.
        search: what it does without a beam.
        members: the rows that vote.
        teachers: the rows that it learns from.
    """

    name: str
    title: str
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    beam: int = 1
    search: str = "greedy"
    members: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()

    @property
    def beams(self) -> tuple[int, ...]:
        """Greedy, and the usual search if it is another one."""
        return (1,) if self.beam == 1 else (1, self.beam)


BEST_TREE = "best tree"
BEST = ("accurate", "graph", "linear")  # of three kinds: they vote, and teach

ROWS = (
    Row("linear", "indicator features, transitions (MaltParser)", "linear", beam=4),
    Row("mst", "indicator features, graph of first order (MSTParser)", "mst", search=BEST_TREE),
    Row("chen-manning", "Chen & Manning 2014", "chen-manning"),
    Row("fast", "`fast`", "fast", beam=4),
    Row("accurate", "`accurate`", "accurate", beam=4),
    Row("global", "`fast`, global beams", "fast", {"learning.loss": "global"}, beam=8),
    Row("graph", "graph, head selection", "graph", search=BEST_TREE),
    Row(
        "graph-crf",
        "graph, CRF over projective trees",
        "graph",
        {"learning.loss": "crf"},
        search=BEST_TREE,
    ),
    Row("vote", f"vote of {', '.join(BEST)}", beam=4, members=BEST),
    Row("distilled", f"`fast`, taught by {', '.join(BEST)}", "fast", beam=4, teachers=BEST),
)
BY_NAME = {row.name: row for row in ROWS}


class Table:
    """The folder of a table: models of rows, their figures, and the table itself.

    Args:
        out: the folder, made if it is not there.
        train: CoNLL-U with trees.
        dev: that by which epochs are chosen and parsers are scored.
        unlabelled: text for the teachers of a distilled row, beside variants of the treebank.
        threads: of training; None leaves the choice to torch.
        overrides: settings of all parsers, `name=value`, for a quick try.

    Raises:
        ConfigError: the folder has figures of another treebank, text or settings.
        DataError: a file cannot be read.
    """

    def __init__(
        self,
        out: Path,
        train: Path,
        dev: Path,
        *,
        unlabelled: Path | None = None,
        threads: int | None = None,
        overrides: Sequence[str] = (),
    ) -> None:
        self.out, self.train, self.dev = out, train, dev
        self.unlabelled, self.threads, self.overrides = unlabelled, threads, list(overrides)
        self.file = out / "parsers.json"
        self.gold = read_annotation(dev)
        about = {
            "train": train.name,
            "dev": dev.name,
            "unlabelled": unlabelled.name if unlabelled else None,
            "sums": [storage.sum_of(path) for path in (train, dev, unlabelled) if path],
            "settings": self.overrides,
        }
        self.about = about
        self.figures = kept_figures(self.file, about, "parsers of another treebank")

    def fill(self, rows: Sequence[Row], num_seeds: int, say: Callable[[str], object]) -> None:
        """Train and measure rows, each with what it consists of, as far as it is not done."""
        for row in rows:
            for name in (*row.members, *row.teachers):
                self._one(BY_NAME[name], 1, say)
            self._one(row, 1, say)
            for seed in range(2, num_seeds + 1):
                if all(self._is_short(name) for name in row.members or (row.name,)):
                    for name in row.members:
                        self._one(BY_NAME[name], seed, say)
                    self._one(row, seed, say)

    def _is_short(self, name: str) -> bool:
        return bool(self.figures[f"{name}-1"]["minutes"] < SHORT)

    def _one(self, row: Row, seed: int, say: Callable[[str], object]) -> None:
        """Train and measure one parser, unless that is done."""
        name = f"{row.name}-{seed}"
        if name in self.figures:
            return
        folders = [self.out / f"{member}-{seed}" for member in row.members]
        if not row.members:
            say(f"training {name}")
            self._train(row, seed)
            folders = [self.out / name]
        say(f"measuring {name}")
        self.figures[name] = self._measured(row, folders)
        self.write()

    def _train(self, row: Row, seed: int) -> None:
        """Train a parser, or go on where it was stopped; nothing is done to one that is there."""
        folder = self.out / f"{row.name}-{seed}"
        if (folder / checkpoint.HEADER).exists():
            return
        values = {**row.settings, "training.seed": seed}
        config = PRESETS.resolve(row.preset, None, values, self.overrides)
        teachers = [self.out / f"{teacher}-1" for teacher in row.teachers]
        train_parser(
            self.train,
            folder,
            config,
            dev=self.dev,
            distil=teachers,
            unlabelled=[self.unlabelled] if teachers and self.unlabelled else (),
            threads=self.threads,
            resume=checkpoint.run_record(folder).exists(),
        )

    def _measured(self, row: Row, folders: Sequence[Path]) -> dict[str, Any]:
        """Return the figures of a parser, or of several that vote."""
        headers = [checkpoint.read_header(folder) for folder in folders]
        searches = {str(beam): self._search(folders, beam) for beam in row.beams}
        return {
            "searches": searches,
            "minutes": sum(header.scores["train_seconds"] for header in headers) / 60,
            "megabytes": sum(
                sum(checkpoint.file_sizes(folder, header).values())
                for folder, header in zip(folders, headers, strict=True)
            )
            / 1e6,
            "date": datetime.date.today().isoformat(),
            "threads": self.threads,
            "machine": hardware.describe_machine("cpu"),
        }

    def _search(self, folders: Sequence[Path], beam: int) -> dict[str, float]:
        """Return the scores of parsers on DEV, and their speed, with a beam."""
        parsed, long = self.out / "parsed.conllu", self.out / "long.conllu"
        text = "".join(sentence.to_conllu() for sentence in read_conllu(self.dev))
        num_words = sum(map(len, read_conllu(self.dev)))
        times = -(-LEAST_WORDS // num_words)
        long.write_text(text * times, encoding="utf-8")
        try:
            with on_one_core():
                to_file(open_models(folders), self.dev, parsed, beam)
                evaluation = score_annotation(self.gold, read_annotation(parsed))
                whole = min(
                    seconds_of(partial(to_file, open_models(folders), long, parsed, beam))
                    for _ in range(REPEATS)
                )
                found = {
                    "uas": evaluation["UAS"].f1,
                    "las": evaluation["LAS"].f1,
                    "words_per_second": times * num_words / whole,
                }
                model = open_models(folders)
                if isinstance(model, Parser):
                    arrays = model.encode(read_conllu(long))
                    alone = min(
                        seconds_of(partial(model.heads_and_labels, arrays, beam=beam))
                        for _ in range(1 + REPEATS)
                    )
                    found["words_per_second_alone"] = times * num_words / alone
        finally:
            parsed.unlink(missing_ok=True)
            long.unlink(missing_ok=True)
        return found

    def write(self) -> str:
        """Write figures and table; return the table."""
        lines = [line for row in ROWS for line in self._lines(row)]
        return write_table(self.file, self.about, self.figures, COLUMNS, lines)

    def _lines(self, row: Row) -> Iterator[list[str]]:
        """Give the lines of a row, one for each search."""
        runs = [
            figures
            for seed in range(1, 1 + MOST_SEEDS)
            if (figures := self.figures.get(f"{row.name}-{seed}"))
        ]
        if not runs:
            yield [row.title, "not run", *[""] * (len(COLUMNS) - 2)]
        for beam in row.beams if runs else ():
            searches = [run["searches"][str(beam)] for run in runs]
            is_first = beam == 1
            yield [
                row.title if is_first else "",
                row.search if is_first else f"beam {beam}",
                *(mean_and_distance([one[score] for one in searches]) for score in ("uas", "las")),
                *(
                    speed([one[name] for one in searches if name in one])
                    for name in ("words_per_second", "words_per_second_alone")
                ),
                f"{statistics.mean(run['minutes'] for run in runs):.1f}" if is_first else "",
                f"{runs[0]['megabytes']:.1f}" if is_first else "",
                str(len(runs)) if is_first else "",
            ]


MOST_SEEDS = 9
COLUMNS = (
    *("parser", "search", "UAS", "LAS", "words/s, file to file", "parsing alone"),
    *("training, minutes", "MB", "seeds"),
)


def mean_and_distance(values: Sequence[float]) -> str:
    """Return the mean of scores and, of several, how far the best is from the worst."""
    distance = f" ({max(values) - min(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{distance}"


def open_models(folders: Sequence[Path]) -> Any:
    """Return a parser, or a vote of several."""
    return checkpoint.load(folders[0] if len(folders) == 1 else list(folders))


def to_file(model: Any, source: Path, target: Path, beam: int) -> None:
    """Parse from one file into another."""
    write_conllu(model.parse_stream(read_batches(source), beam=beam), target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the table as far as it is asked for; print it, and where it is."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("train", type=Path, help="CoNLL-U with trees")
    options.add_argument("dev", type=Path, help="CoNLL-U by which epochs are chosen; scored")
    options.add_argument("--out", type=Path, default=Path("runs/parsers"))
    options.add_argument("--rows", default="", help=f"some of {','.join(BY_NAME)}; default all")
    options.add_argument("--seeds", type=int, default=3, choices=range(1, 1 + MOST_SEEDS))
    options.add_argument("--unlabelled", type=Path, help="text that teachers parse")
    options.add_argument("--threads", type=int, help="of training")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = options.parse_args(arguments)

    def fill() -> None:
        rows = chosen_rows(given.rows, ROWS)
        table = Table(
            given.out,
            given.train,
            given.dev,
            unlabelled=given.unlabelled,
            threads=given.threads,
            overrides=given.set,
        )
        table.fill(rows, given.seeds, say)
        print(table.write())
        print(f"\n{given.out / 'parsers.md'}; all numbers: {table.file}")

    return exit_code(fill)


if __name__ == "__main__":
    sys.exit(main())
