"""`seqtool demo`: a short story on the shipped sample, told by commands that anybody can type."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from seqtool.cli.options import JsonOption, emit, option, show_table
from seqtool.cli.usage import examples
from seqtool.core import checkpoint, terminal
from seqtool.core.errors import SeqtoolError
from seqtool.core.runtime import available_threads
from seqtool.core.terminal import echo, short_path

WIDTH = 78  # of what is shown, in columns
AHEAD = "seqtool train-parser"  # begins at once, and is shown when its step comes


class Command(NamedTuple):
    """A command as it is typed, `{out}` being the directory, and what is shown of its output."""

    line: str
    shown: str = "(?!)"  # a regular expression; else nothing


class Step(NamedTuple):
    """What is done, in one sentence, how, and what the reader should know of the result."""

    title: str
    commands: list[Command]
    remark: str = ""


ALL = ".+"
PERPLEXITY = "perplexity.*\n  of the grammar.*"
SETTINGS = (
    "--depth 3 --hidden 160 --tied --dropout 0.2 --batch-size 16 --bptt 20 --epochs 5 "
    "--lr 0.005 --schedule cosine --threads 1"
)
OWN_COMMAND = (sys.executable, "-m", "seqtool")
MODELS = ("ngram", "rhn", "parser")
SCORES = {
    "perplexity": "^perplexity +(\\S+)",
    "true_perplexity": "^perplexity.*\n  of the grammar +(\\S+)",
    "UAS": "^UAS(?: +\\S+){2} +(\\S+)",
    "LAS": "^LAS(?: +\\S+){2} +(\\S+)",
}
PLOT = "seqtool inspect {out}/rhn --plot {out}/curve.svg"
TABLE = "Compare the models."
COMPARED = (
    "\nThe scores are for the test part, which no model has seen. The seconds are the\n"
    "time of the training."
)
INTRO = """\
The demo takes one to two minutes, or longer on a busy computer. Each step shows
commands that you can type, and the important lines of their output. A command
without an input reads the English sample of seqtool."""
# the first sentence of the test part has 12 words; a line of names or text stands above them
STEPS = [
    Step(
        "Turn text into numbers: each word gets an id.",
        [Command("seqtool prepare -o {out}/corpus --force", "(?:no INPUT|train|valid|test) .*")],
    ),
    Step(
        "Train an n-gram model: count which word follows each sequence of four words.",
        [
            Command(
                "seqtool ngram train {out}/corpus --order 5 -o {out}/ngram --force",
                "order +n-grams| +[1-5] +[0-9,]+|valid perplexity.*",
            ),
            Command("seqtool eval-ppl -m {out}/ngram", PERPLEXITY),
        ],
        "A perplexity of 100 means that the model is as unsure as if it had to choose among 100 "
        "equally likely words. Lower is better. A grammar generated the sample, so the best "
        "possible perplexity is known: the line 'of the grammar' shows it.",
    ),
    Step(
        "Train a neural language model, a Recurrent Highway Network (RHN).",
        [
            Command(
                f"seqtool train-lm {{out}}/corpus --cell rhn {SETTINGS} -o {{out}}/rhn --force",
                "training for .*|epoch [0-9/]+  train perplexity .*?  valid perplexity [0-9.,]+",
            ),
            Command("seqtool eval-ppl -m {out}/rhn", PERPLEXITY),
        ],
    ),
    Step(
        "Generate three sentences with the RHN.",
        [Command('seqtool generate --num 3 --seed 1 --prompt "the old" -m {out}/rhn', ALL)],
    ),
    Step(
        "Train a dependency parser on sentences with trees.",
        [
            Command(
                "seqtool train-parser --epochs 1 --threads 1 -o {out}/parser --force",
                "[0-9,]+ sentences of [0-9,]+ words|dev LAS.*?UAS [0-9.]+",
            ),
            Command("seqtool eval-parser -m {out}/parser", "(?:metric|UAS|LAS) .*"),
        ],
        "The head of a word is the word that it depends on. UAS is the percentage of words with "
        "the right head. LAS is the percentage of words with the right head and relation.",
    ),
    Step(
        "Parse the test part of the sample, and look at the first tree.",
        [
            Command("seqtool parse -m {out}/parser --format tree -o {out}/trees.txt"),
            Command("head -n 13 {out}/trees.txt", ALL),
        ],
        "A line leads from each word to its head. Beside the word are its tag and its relation.",
    ),
    Step(
        "Measure the surprisal of each word, and show it beside the tree.",
        [
            Command("seqtool surprisal -m {out}/rhn -o {out}/words.tsv", ".* words in .*"),
            Command("cut -f 6 {out}/words.tsv | paste - {out}/trees.txt | sed -n 2,13p", ALL),
        ],
        "Surprisal says how unexpected a word is for the RHN, in bits. A high number means that "
        "the word surprises the model.",
    ),
    Step(TABLE, []),
    Step(
        "Draw the learning curve of the RHN.",
        [Command(PLOT, ALL)],
        "Open the picture in a browser. The perplexity falls from epoch to epoch.",
    ),
]
OWN = """
Now use your own text (one sentence a line) and your own trees (CoNLL-U):
$ seqtool train-lm my.txt --cell rhn
$ seqtool generate --prompt "..."
$ seqtool surprisal other.txt
$ seqtool train-parser my.conllu
This command shows the manual:
$ seqtool help

seqtool also has a Korean sample. This command trains a model on it:
$ seqtool train-lm {korean} -o runs/korean
"""


@examples("seqtool demo", "seqtool demo -o runs/demo --json")
def demo(
    output: Path = option(
        Path("runs/demo"), "Directory; an earlier demo in it is replaced.", "DIR", "-o"
    ),
    as_json: JsonOption = False,
) -> None:
    """Train, measure and use language models and a parser on the shipped sample, in two minutes.

    Every step shows commands that you can type, and the lines of their output that matter. The
    sample was written by a grammar, so the best perplexity that any model can reach is known.
    """
    _Story(output, to_stderr=as_json).tell(as_json)


class _Story:
    """The demo while it runs: what was begun, and what came out."""

    def __init__(self, output: Path, *, to_stderr: bool) -> None:
        self.output, self.to_stderr = output, to_stderr
        self.running: set[subprocess.Popen[str]] = set()
        self.printed: dict[str, str] = {}  # a command with `{out}` -> its output

    def tell(self, as_json: bool) -> None:
        """Run and show all steps.

        Raises:
            SeqtoolError: a command failed.
        """
        from seqtool.text.datasets import sample_directory

        begin = time.perf_counter()
        korean = shlex.quote(str(short_path(sample_directory() / "ko")))
        self._say(INTRO)
        with ThreadPoolExecutor() as pool:
            ahead = {
                command: pool.submit(self._run, command)
                for command in chain.from_iterable(step.commands for step in STEPS)
                if command.line.startswith(AHEAD) and available_threads() > 1
            }
            try:
                for number, step in enumerate(STEPS, start=1):
                    self._say(f"\n{number}. {step.title}", bold=True)
                    if step.title == TABLE:
                        self._show_table()
                    remark = step.remark
                    for command in step.commands:
                        self._say(f"\n{_wrapped(self._filled(command))}")
                        started = ahead.get(command) or pool.submit(self._run, command)
                        try:
                            self._show(command, self._wait(started))
                        except SeqtoolError as error:
                            if command.line != PLOT:
                                raise
                            remark = f"No picture is drawn: {error}: {error.hint}"
                    if remark:
                        self._say(f"\n{textwrap.fill(remark, WIDTH)}")
            finally:
                for process in list(self.running):
                    process.terminate()
        seconds = time.perf_counter() - begin
        self._say(f"\nThe demo took {seconds:.0f} seconds. Its files are in {self.output}.")
        self._say(OWN.format(korean=korean).rstrip())
        if as_json:
            found = [self._described(name) for name in MODELS]
            parsers = [each for each in found if "LAS" in each["test"]]
            models = [each for each in found if each not in parsers]
            emit({"models": models, "parsers": parsers, "seconds": seconds})

    def _filled(self, command: Command) -> str:
        return command.line.format(out=shlex.quote(str(self.output)))

    def _say(self, text: str, *, bold: bool = False) -> None:
        echo(text, err=self.to_stderr, bold=bold)

    def _run(self, command: Command) -> str:
        """Run a command, or commands that read from one another, and return the output."""
        line, printed = self._filled(command), ""
        words = shlex.split(line)
        while words:
            part = [*takewhile(lambda word: word != "|", words)]
            words = words[len(part) + 1 :]
            with subprocess.Popen(
                [*(OWN_COMMAND if part[0] == "seqtool" else part[:1]), *part[1:]],
                # a pipe without data would be read in place of the sample
                stdin=subprocess.PIPE if printed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            ) as process:
                self.running.add(process)
                printed = process.communicate(printed or None)[0]
                self.running.remove(process)
            if process.returncode:
                reason = re.search("^error: (.*)\n(?:hint: (.*))?", printed, re.MULTILINE)
                code = process.returncode
                what, hint = reason.groups() if reason else (f"exit code {code}", None)
                what = f"{' '.join(part[:2])}: {what}"
                raise SeqtoolError(what, hint=hint or f"see what it says: {line}")
        self.printed[command.line] = printed
        return printed

    def _show(self, command: Command, printed: str) -> None:
        """Show the lines of a command's output that matter."""
        for excerpt in re.findall(f"^(?:{command.shown})", printed, re.MULTILINE):
            for text in excerpt.splitlines():
                self._say(textwrap.fill(text.expandtabs().rstrip(), WIDTH))

    def _wait(self, started: Future[str]) -> str:
        """Return the output of a command when it ends; a terminal shows how long that takes."""
        moving, seconds = terminal.stream(err=self.to_stderr, draws=True), 0
        try:
            while not wait([started], timeout=1).done:
                seconds += 1
                if moving.isatty():
                    moving.write(f"\r... {seconds} s")
                    moving.flush()
            return started.result()
        finally:
            if seconds and moving.isatty():
                moving.write("\r\x1b[K")
                moving.flush()

    def _described(self, name: str) -> dict[str, Any]:
        """Return what --json prints of a model."""
        (printed,) = (
            printed
            for line, printed in self.printed.items()
            if line.startswith("seqtool eval-") and line.endswith(f"/{name}")
        )
        found = {name: re.search(score, printed, re.MULTILINE) for name, score in SCORES.items()}
        header = checkpoint.read_header(self.output / name)
        return {
            **{"model": str(self.output / name), "kind": header.kind},
            **{"parameters": header.num_parameters, "seconds": header.scores["train_seconds"]},
            "test": {name: float(each[1].replace(",", "")) for name, each in found.items() if each},
        }

    def _show_table(self) -> None:
        """Show what was trained, and how well."""
        rows = []
        for found in map(self._described, MODELS):
            scores = map(found["test"].get, ("perplexity", "true_perplexity", "LAS"))
            shown = ["" if score is None else f"{score:.2f}" for score in scores]
            name, size = Path(found["model"]).name, f"{found['parameters']:,}"
            rows.append([name, size, *shown, f"{found['seconds']:.1f}"])
        columns = ["model", "parameters", "perplexity", "of the grammar", "LAS", "seconds"]
        show_table(COMPARED, columns, rows, to_stderr=self.to_stderr)


def _wrapped(line: str) -> str:
    """Return a command as it is typed, with a backslash where a line ends before the command."""
    lines = [""]
    for part in re.split(r" (?=--[a-z]|-o |\| )", f"$ {line}"):
        if lines[-1] and len(lines[-1]) + len(part) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}" if lines[-1] else part
    return "\n".join(lines)
