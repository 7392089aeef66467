"""Small jobs of every command that writes, whose outcome is the same each time."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from faults.runs import ROOT, Commands, Result, sums_of

SAMPLE = ROOT / "data"
ENDS = ("--threads", "1")
# all parts that `--raw` trains, each as short as can be
RAW = [
    "--set=folds=2",
    "--set=perceptron.training.epochs=1",
    "--set=perceptron.model.hash_bits=10",
    "--set=parser.model.hidden_size=16",
    *(
        f"--set={part}.{setting}"
        for part in ("segmenter", "tagger", "parser", "graph")
        for setting in ("training.epochs=1", "learning.min_steps=2", "model.encoder_size=8")
        if (part, setting) != ("segmenter", "model.encoder_size=8")
    ),
]


@dataclass(frozen=True)
class Job:
    """A command that makes the directory `out`."""

    name: str
    args: tuple[str, ...]
    use: tuple[str, ...]  # a command that reads the output
    needs: tuple[tuple[str, str], ...] = ()  # (directory, job whose output it is)
    resumes: bool = True  # whether the command has `--resume`
    other: tuple[str, ...] = ("--seed", "7")  # options that make another model

    def run(self, commands: Commands, folder: Path, *more: str, **how: object) -> Result:
        """Run the command in a directory."""
        return commands(*self.args, *more, cwd=folder, **how)  # type: ignore[arg-type]

    def works(self, commands: Commands, folder: Path) -> Result:
        """Use the output."""
        return commands(*self.use, cwd=folder)


_LM = ("--set=hidden_size=6", "--batch-size=4", "--bptt=8", "--epochs=2", "-o", "out", *ENDS)
_TREES = ("t.conllu", "--dev", "d.conllu", "-o", "out", *ENDS)
_CORPUS = (("words", "prepare"),)

JOBS = {
    job.name: job
    for job in (
        Job(
            "prepare",
            ("prepare", "t.txt", "-o", "out", "--unit", "word"),
            ("ngram", "counts", "out", "--order", "1"),
            resumes=False,
            other=("--min-count", "2"),
        ),
        Job(
            "ngram",
            ("ngram", "train", "words", "--order", "2", "-o", "out"),
            ("eval-ppl", "v.txt", "-m", "out"),
            _CORPUS,
            resumes=False,
            other=("--order", "3"),
        ),
        Job(
            "lm",
            ("train-lm", "words", "--cell", "rhn", "--set=depth=2", *_LM),
            ("eval-ppl", "v.txt", "-m", "out"),
            _CORPUS,
        ),
        Job(
            "lm-raw-text",
            ("train-lm", "t.txt", "--cell", "rnn", *_LM),
            ("eval-ppl", "v.txt", "-m", "out"),
        ),
        Job(
            "parser",
            ("train-parser", *_TREES, "--epochs", "2", "--hidden", "16"),
            ("parse", "d.conllu", "-m", "out"),
        ),
        Job(
            "pipeline",
            ("train-parser", *_TREES, "--raw", *RAW),
            ("parse", "v.txt", "-m", "out"),
        ),
        Job(
            "mixture",
            ("eval-ppl", "v.txt", "-m", "a", "-m", "b", "--tune", "v.txt", "--save-mixture", "out"),
            ("eval-ppl", "v.txt", "-m", "out"),
            (*_CORPUS, ("a", "ngram"), ("b", "lm")),
            resumes=False,
            other=("--tune", "t.txt"),
        ),
        Job(
            "fetch",
            ("fetch", "ptb", "--from", "source", "-o", "out"),
            ("ngram", "counts", "out/train.txt", "--order", "1"),
            resumes=False,
            other=(),
        ),
    )
}


def lay_out(folder: Path) -> None:
    """Write the texts and treebanks that jobs read."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (SAMPLE / "en" / "train.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "t.txt").write_text("".join(lines[:30]), "utf-8")
    (folder / "v.txt").write_text("".join(lines[30:40]), "utf-8")
    trees = (SAMPLE / "en" / "valid.conllu").read_text("utf-8").split("\n\n")
    (folder / "t.conllu").write_text("\n\n".join(trees[:20]) + "\n\n", "utf-8")
    (folder / "d.conllu").write_text("\n\n".join(trees[20:26]) + "\n\n", "utf-8")
    source = folder / "source"
    source.mkdir()
    for split in ("train", "valid", "test"):
        (source / f"ptb.{split}.txt").write_text("".join(lines[:20]), "utf-8")


def start(commands: Commands, job: Job, folder: Path) -> None:
    """Lay out a directory with all that a job needs."""
    lay_out(folder)
    for directory, needed in job.needs:
        done = JOBS[needed].run(commands, folder)
        assert done.code == 0, done
        (folder / "out").rename(folder / directory)


@dataclass(frozen=True)
class Outcome:
    """What a job does when nothing disturbs it."""

    before: Path  # a directory to start in
    old: Path  # the same, with a finished model of other settings
    weights: dict[str, str]  # that it writes
    old_weights: dict[str, str]  # those of the finished model
    events: tuple[int, int]  # changes of files that it makes in `before`, in `old` with `--force`

    @property
    def has_old(self) -> bool:
        """Whether the command can replace a finished output: it has `--force`."""
        return bool(self.events[1])

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Return what was written."""
        before, old, *sums, events = json.loads(text).values()
        return cls(Path(before), Path(old), *sums, tuple(events))


def undisturbed(commands: Commands, job: Job, folder: Path) -> Outcome:
    """Run a job as it should go, once without a model and once with `--force` over another."""
    before, old, work = folder / "before", folder / "old", folder / "work"
    start(commands, job, before)
    copy = partial(shutil.copytree, symlinks=True)
    copy(before, work)
    fresh = job.run(commands, work)
    assert fresh.code == 0, fresh
    weights = final(work)
    shutil.rmtree(work)
    copy(before, old)
    assert job.run(commands, old, *job.other).code == 0
    copy(old, work)
    forced = job.run(commands, work, "--force")
    assert forced.code == 0, forced
    assert final(work) == weights, f"{job.name} makes other weights with --force"
    shutil.rmtree(work)
    return Outcome(before, old, weights, final(old), (fresh.events, forced.events))


def final(folder: Path) -> dict[str, str]:
    """Return the sums of a finished output, as a reader finds it; empty where there is none."""
    from seqtool.core import checkpoint, storage
    from seqtool.core.errors import ModelError

    output = storage.present(folder / "out")
    if (output / "corpus.json").is_file() or (output / "dataset.json").is_file():
        return sums_of(path for path in output.iterdir() if path.suffix in (".bin", ".txt"))
    try:
        found = checkpoint.find(folder / "out")
    except ModelError:
        return {}
    header = checkpoint.read_header(found)
    checkpoint.verify(found, header)
    parts = [found, *(item for item in found.iterdir() if (item / "model.json").is_file())]
    sums = {
        f"{part.name if part != found else ''}/{name}": sum_
        for part in parts
        if part == found or part.name not in ("best", "last")
        for name, sum_ in sums_of([part / "weights.safetensors"]).items()
    }
    return {**sums, "weights": str(header.config.get("weights"))}
