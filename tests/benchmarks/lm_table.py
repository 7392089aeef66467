"""All language models over one text in one table: perplexity, parameters, speed, memory.

    make lm-table DATA=folder [TIME=20m] [OUT=runs/lm-table] [ROWS=kn5,lstm]
    PYTHONPATH=tests python -m benchmarks.lm_table FOLDER [--time-limit 20m] [--out DIR] ...

FOLDER holds train.txt and valid.txt. Every network has the same time on one core, the learning rate
falling by then, and the same settings but for what its row says; what is counted takes its time.
A row is trained and measured once, by the commands that a user would type, each in a process of its
own: its figures are kept in OUT, and the same command goes on where it was stopped, within a
training too.

Perplexity is that of the whole of valid, in one stream, by a model that does not learn from it.
Rows of several models, and with a cache, have weights and settings fitted on one half of valid and
are measured on the other, both ways; the two give the perplexity of the whole. Dynamic evaluation
has its default settings. Peak memory is that of the process. OUT/models.md is the table,
OUT/models.json has all numbers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tables import (
    chosen_rows,
    exit_code,
    kept_figures,
    on_one_core,
    say,
    speed,
    write_table,
)

from seqtool.core import checkpoint, storage
from seqtool.core.errors import ConfigError, SeqtoolError
from seqtool.training.config import seconds_of
from seqtool.training.hardware import describe_machine, resolve_precision

COMMON = (
    "--hidden 256 --tied --schedule cosine --clip 1 --set schedule_minimum=0.02 "
    "--set dropout=variational --set dropout_words=0.05 --set dropout_input=0.2 "
    "--set dropout_output=0.3"
)
RNN, LSTM, RHN = "--cell rnn --lr 0.001", "--cell lstm --lr 0.003", "--cell rhn --lr 0.002"
# stand for the networks of the lowest perplexities among those in the table
BEST, SECOND = "best", "second"
NETWORK = "train-lm"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: in OUT and in ROWS.
        title: in the table.
        options: of the command that trains.
        command: that command.
        parts: the rows that are mixed or adapted; none of a row that is itself trained.
        adapt: the options of eval-ppl that let them learn from valid.
    """

    name: str
    title: str
    options: str = ""
    command: str = NETWORK
    parts: tuple[str, ...] = ()
    adapt: str = ""

    @property
    def is_network(self) -> bool:
        """Whether it is trained for the time that is given."""
        return not self.parts and self.command == NETWORK

    @property
    def is_fitted(self) -> bool:
        """Whether weights or settings are fitted on the text that is measured."""
        return len(self.parts) > 1 or "--cache" in self.adapt


KN5, SNM = "kn5", "snm"
DYNAMIC = "--dynamic --dynamic-rate 0.0001 --dynamic-decay 0.008"  # the defaults, not tuned
ROWS = (
    Row(KN5, "Kneser-Ney 5-gram", "--order 5", "ngram train"),
    Row(SNM, "sparse non-negative matrix (Shazeer et al. 2015)", "", "ngram snm"),
    Row("window", "fixed window (Bengio et al. 2003)", "--cell window --lr 0.001"),
    Row("rnn", "RNN", RNN),
    Row("rnn-maxent", "RNN + MaxEnt n-grams", f"{RNN} --output-layer maxent"),
    Row("rnn-nce", "RNN + NCE", f"{RNN} --output-layer nce"),
    Row("rnn-blackout", "RNN + BlackOut", f"{RNN} --output-layer blackout"),
    Row("gru", "GRU", "--cell gru --lr 0.003"),
    Row("lstm", "LSTM", LSTM),
    Row("lstm-projected", "LSTM of 512, projected to 256", f"{LSTM} --hidden 512 --projection 256"),
    Row("lstm-adaptive", "LSTM + adaptive softmax", f"{LSTM} --output-layer adaptive"),
    Row("rhn", "RHN of depth 5", f"{RHN} --depth 5"),
    Row(
        "rhn-adaptive",
        "RHN of depth 5 + adaptive softmax",
        f"{RHN} --depth 5 --output-layer adaptive",
    ),
    Row("dynamic", "best network, dynamic evaluation", parts=(BEST,), adapt=DYNAMIC),
    Row("both", "best network + KN5", parts=(BEST, KN5)),
    Row("four", "two best networks + SNM + KN5", parts=(BEST, SECOND, SNM, KN5)),
    Row("cache", "best network + KN5 + cache", parts=(BEST, KN5), adapt="--cache"),
    Row(
        "all",
        "best network, dynamic evaluation + KN5 + cache",
        parts=(BEST, KN5),
        adapt=f"--cache {DYNAMIC}",
    ),
)
COLUMNS = (
    *("model", "valid perplexity", "parameters", "training, tokens/s", "minutes"),
    *("scoring, tokens/s", "MB on disk", "peak MB, training", "peak MB, scoring"),
)


class Table:
    """The folder of a table: the corpus, models of rows, their figures, and the table itself.

    Args:
        out: the folder, made if it is not there.
        data: a folder with train.txt and valid.txt.
        time_limit: of the training of each network.
        overrides: settings of all networks, `name=value`, for a quick try.

    Raises:
        ConfigError: the folder has figures of another text, time or settings.
        OSError: a file of the text is not there.
    """

    def __init__(
        self, out: Path, data: Path, time_limit: str, overrides: Sequence[str] = ()
    ) -> None:
        seconds_of(time_limit)
        self.out, self.data, self.time_limit = out, data, time_limit
        self.overrides = list(overrides)
        self.precision = resolve_precision("fast", "cpu")
        self.file, self.words = out / "models.json", out / "words"
        self.halves = (out / "half1.txt", out / "half2.txt")
        self.about = {
            "sums": [storage.sum_of(data / f"{part}.txt") for part in ("train", "valid")],
            "time_limit": time_limit,
            "settings": self.overrides,
        }
        self.figures = kept_figures(self.file, self.about, "models of another text or time")

    def fill(self, rows: Sequence[Row]) -> None:
        """Train and measure rows, as far as it is not done."""
        self._prepare()
        with on_one_core():
            for row in rows:
                parts = self._parts(row)
                kept = self.figures.get(row.name)
                if kept is not None and kept["parts"] == parts:
                    continue
                say(f"{row.title} ({', '.join(parts)})" if parts else row.title)
                found = self._measured(row, parts) if parts else self._trained(row)
                self.figures[row.name] = {
                    **found,
                    "parts": parts,
                    "date": datetime.date.today().isoformat(),
                    "machine": describe_machine("cpu"),
                }
                self.write()

    def _prepare(self) -> None:
        """Make the corpus, and two halves of its valid text."""
        files = [self.data / f"{part}.txt" for part in ("train", "valid")]
        if not (self.words / "corpus.json").exists():
            words = [str(files[0]), "--valid", str(files[1]), "-o", str(self.words), "--force"]
            run("prepare", *words)
        lines = files[1].read_text(encoding="utf-8").splitlines(keepends=True)
        middle = len(lines) // 2
        for path, part in zip(self.halves, (lines[:middle], lines[middle:]), strict=True):
            storage.replace_text(path, "".join(part))

    def _parts(self, row: Row) -> list[str]:
        """Return the rows that a row consists of; none of one that is itself trained.

        Raises:
            ConfigError: they are not trained yet.
        """
        if not row.parts:
            return []
        networks = {
            other.name: self.figures[other.name]["perplexity"]
            for other in ROWS
            if other.is_network and other.name in self.figures
            if self.figures[other.name]["perplexity"] is not None
        }
        found = dict(zip((BEST, SECOND), sorted(networks, key=networks.__getitem__), strict=False))
        parts = [found.get(part, "") if part in (BEST, SECOND) else part for part in row.parts]
        if missing := [part for part in parts if part not in self.figures]:
            what = f"{row.name} needs {missing[0] or 'a network'}, which is not in the table yet"
            raise ConfigError(what, hint="leave out ROWS, or name its parts as well")
        return parts

    def _trained(self, row: Row) -> dict[str, Any]:
        """Train a row's model, and measure it."""
        folder = self.out / row.name
        text, begun = str(self.words), time.perf_counter()
        if not row.is_network:
            _, memory = run(row.command, text, *row.options.split(), "-o", str(folder), "--force")
        elif checkpoint.run_record(folder).exists():
            _, memory = run(NETWORK, "--resume", "-o", str(folder))
        else:
            settings = [word for value in self.overrides for word in ("--set", value)]
            words = [*COMMON.split(), *row.options.split(), "--precision", self.precision]
            words += ["--time-limit", self.time_limit, "--threads", "1", "--seed", "1", *settings]
            _, memory = run(NETWORK, text, *words, "-o", str(folder), "--force")
        seconds = time.perf_counter() - begun
        header = checkpoint.read_header(folder)
        scored = self._scored([row.name], "", [str(self.words), "--split", "valid"])
        tokens = storage.read_object(self.words / "corpus.json")["splits"]["train"]["tokens"]
        return {
            **scored,
            "parameters": header.num_parameters,
            "train_tokens_per_second": header.scores.get("tokens_per_second")
            or (None if row.is_network else tokens / seconds),
            "minutes": header.scores.get("train_seconds", seconds) / 60,
            "megabytes": sum(checkpoint.file_sizes(folder, header).values()) / 1e6,
            "train_peak_megabytes": memory,
        }

    def _measured(self, row: Row, parts: Sequence[str]) -> dict[str, Any]:
        """Measure models that are there, together or while they learn."""
        if not row.is_fitted:
            return self._scored(parts, row.adapt, [str(self.words), "--split", "valid"])
        nats = tokens = seconds = memory = 0.0
        for measured, fitted in (self.halves, self.halves[::-1]):
            half = self._scored(parts, row.adapt, [str(measured), "--tune", str(fitted)])
            perplexity = math.inf if half["perplexity"] is None else half["perplexity"]
            nats += half["tokens"] * math.log(perplexity)
            tokens += half["tokens"]
            seconds += half["tokens"] / half["score_tokens_per_second"]
            memory = max(memory, half["score_peak_megabytes"])
        return {
            "perplexity": math.exp(nats / tokens) if math.isfinite(nats) else None,
            "tokens": int(tokens),
            "score_tokens_per_second": tokens / seconds,
            "score_peak_megabytes": memory,
        }

    def _scored(self, parts: Sequence[str], adapt: str, text: Sequence[str]) -> dict[str, Any]:
        """Return what eval-ppl says of models, and the memory that it takes.

        A perplexity that is not finite is None: a network may be lost while it goes on learning.
        """
        models = [word for part in parts for word in ("-m", str(self.out / part))]
        printed, memory = run(
            "eval-ppl", *text, *models, *adapt.split(), "--threads", "1", "--json"
        )
        found = json.loads(printed)
        return {
            "perplexity": found["perplexity"],
            "tokens": found["tokens"],
            "score_tokens_per_second": found["tokens"] / found["seconds"],
            "score_peak_megabytes": memory,
        }

    def write(self) -> str:
        """Write figures and table; return the table."""
        lines = [list(self._cells(row)) for row in ROWS]
        return write_table(self.file, self.about, self.figures, COLUMNS, lines)

    def _cells(self, row: Row) -> Iterator[str]:
        """Give the cells of a row's line."""
        found = self.figures.get(row.name)
        yield row.title
        if found is None:
            yield "not run"
            yield from [""] * (len(COLUMNS) - 2)
            return
        yield "infinite" if found["perplexity"] is None else f"{found['perplexity']:.2f}"
        yield f"{found['parameters']:,}" if "parameters" in found else ""
        yield speed([found[name]] if (found.get(name := "train_tokens_per_second")) else [])
        yield f"{found['minutes']:.1f}" if "minutes" in found else ""
        yield speed([found["score_tokens_per_second"]])
        yield f"{found['megabytes']:.1f}" if "megabytes" in found else ""
        yield f"{found['train_peak_megabytes']:.0f}" if "train_peak_megabytes" in found else ""
        yield f"{found['score_peak_megabytes']:.0f}"


def run(command: str, *words: str) -> tuple[str, float]:
    """Run a command of seqtool in a process of its own; return its stdout and its peak memory.

    Returns:
        What it printed, and megabytes; NaN where the system does not tell.

    Raises:
        SeqtoolError: it failed, and has said why.
        KeyboardInterrupt: it was stopped, with its state saved.
    """
    typed = [sys.executable, "-m", "seqtool", *command.split(), *words]
    process = subprocess.Popen(typed, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stdout is not None
    try:
        with process.stdout:
            printed = process.stdout.read()
        memory = math.nan
        if hasattr(os, "wait4"):
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            # Linux counts kilobytes, macOS bytes
            memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
        else:
            process.wait()
    except BaseException:
        process.terminate()  # it saves what it has
        process.wait()
        raise
    if process.returncode in (130, 143):
        raise KeyboardInterrupt
    if process.returncode:
        hint = "mend that; the same command goes on"
        raise SeqtoolError(f"seqtool {command} failed, as it says above", hint=hint)
    return printed, memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the table as far as it is asked for; print it, and where it is."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("data", type=Path, help="a folder with train.txt and valid.txt")
    options.add_argument("--out", type=Path, default=Path("runs/lm-table"))
    options.add_argument("--time-limit", default="20m", help="of each network: 90s, 20m, 1h30m")
    names = ",".join(row.name for row in ROWS)
    options.add_argument("--rows", default="", help=f"some of {names}; default all")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = options.parse_args(arguments)

    def fill() -> None:
        rows = chosen_rows(given.rows, ROWS)
        table = Table(given.out, given.data, given.time_limit, given.set)
        table.fill(rows)
        print(table.write())
        print(f"\n{table.file.with_suffix('.md')}; all numbers: {table.file}")

    return exit_code(fill)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: a training saves, too
    sys.exit(main())
