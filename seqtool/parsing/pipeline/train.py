"""Training of all that raw text needs: `train_pipeline`.

tagger/                 trained on the treebank; others of other seeds in tagger-2/ and so on
segmenter/              likewise; segmenter-2/ ...
multiword/              on surface tokens, where these need it: see `model`; multiword-2/ ...
jackknife/              taggers of parts of it, removed when they are done
treebank/train.conllu   the treebank with the tags that those gave it
treebank/gold.conllu    the same sentences with gold tags, which an encoder of the parser learns too
treebank/dev.conllu     the validation part with the tags of the ensemble of taggers
treebank/surface.conllu the surface tokens that multiword/ learns from; surface-dev.conllu
parser/                 trained on both of these, since it will read predicted tags; parser-2/ ...
graph/                  likewise, where it votes with these; graph-2/ ...
perceptron/             likewise

On the CPU, as many parts as there are threads are trained at once, each in a process of its own:
first all that comes before `treebank/`, then the parsers. A process of the preset `accurate` takes
0.8 to 1.6 GB of memory with the shipped sample; more with a larger treebank. The results are those
of one part after another with as many threads as each has then.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.checkpoint import Header
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.core.progress import Event, RunStarted, StepDone, shows_progress
from seqtool.parsing.parser.calibration import CALIBRATIONS, calibrations_to_json
from seqtool.parsing.parser.train import PARSER, train_parser
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.config import (
    KIND,
    PARSERS,
    PRESETS,
    PipelineConfig,
    folders,
)
from seqtool.parsing.pipeline.folds import check_folds, fold_config, in_order, tagged_fold
from seqtool.parsing.pipeline.jobs import Job, run_jobs
from seqtool.parsing.pipeline.model import (
    LEAST_SHARE,
    Pipeline,
    model_card,
    open_part,
    open_pipeline,
    share_of_both,
    surface_sentence,
)
from seqtool.parsing.segmenter.data import raw_text
from seqtool.parsing.segmenter.train import SEGMENTER, train_segmenter
from seqtool.parsing.tagger.model import Tagger
from seqtool.parsing.tagger.train import TAGGER, train_tagger
from seqtool.parsing.train import (
    Kind,
    TreebankRecord,
    WordRecordOptions,
    open_record,
    with_precision,
)
from seqtool.training import hardware
from seqtool.training.run import Trained
from seqtool.treebank.conllu import held_out, read_conllu, write_conllu
from seqtool.treebank.evaluation import evaluate_parser
from seqtool.treebank.sentence import Sentence

JACKKNIFE, TREEBANK = "jackknife", "treebank"

# how a part is trained
TRAINED_AS: dict[str, tuple[Kind[Any], Callable[..., Any]]] = {
    "segmenter": (SEGMENTER, train_segmenter),
    "multiword": (TAGGER, train_tagger),
    "tagger": (TAGGER, train_tagger),
    "graph": (PARSER, train_parser),
    "parser": (PARSER, train_parser),
    "perceptron": (PARSER, train_parser),
}
# about how long parts take beside one another; those that find heads by what does so
SHARES = {
    **{"segmenter": 1.0, "multiword": 2.0, "tagger": 6.0, "fold": 0.6},
    **{"graph": 10.0, "transition": 6.0, "linear": 1.0},
}
ESTIMATE_STEPS = 100  # of a tagger, after which the time of all is told
METRICS = ("Words", "Sentences", "UPOS", "XPOS", "UFeats", "Lemmas", "UAS", "LAS")


@dataclass(frozen=True)
class TrainedPipeline(Trained):
    """What `train_pipeline` returns.

    Attributes:
        path: the model directory.
        scores: F1 in percent on the raw text of the validation part (`dev_words`, `dev_las` ...);
            without one, those of the parts on what they held out.
        seconds: training time of the parts, validation included, over all continuations; without
            that of the taggers of folds.
        num_parameters: trained numbers.
        is_fit: whether each part was trained on all of the treebank once, as it is used.
    """

    shown = ("path", "scores", "seconds", "num_parameters")

    scores: dict[str, float]
    seconds: float
    num_parameters: int
    is_fit: bool


@shows_progress(has_parts=True)
@runtime.writes_to("output")
def train_pipeline(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: PipelineConfig | str | Mapping[str, Any] | None = None,
    *,
    progress: bool | None = None,
    device: str = "auto",
    on_event: Callable[[Event, str], None] = lambda event, part: None,
    on_part: Callable[[str], None] = lambda part: None,
    on_held_out: Callable[[int, int], None] = lambda num_train, num_dev: None,
    on_plan: Callable[[Sequence[str]], None] = lambda parts: None,
    on_estimate: Callable[[float], None] = lambda seconds: None,
    should_stop: Callable[[int], bool] | None = None,
    **options: Unpack[WordRecordOptions],
) -> TrainedPipeline:
    """Train segmenters, taggers with a lemmatizer, and parsers on one treebank.

    Args:
        train_files: CoNLL-U with tags, lemmas and trees. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, the name of a preset, or some settings as a dictionary, such as
            `{"parser": {"training": {"epochs": 5}}}`; the preset `accurate` if not given; those of
            the run when one is resumed.
        progress: show on stderr how it goes on; if None, where there is no `on_event`.
        device: auto, cpu, cuda or mps.
        on_event: called with every event of every run, and the name of the part.
        on_part: called with the name of a part that is begun: its folder, or `fold 1 of 5`.
        on_held_out: called with how many sentences are trained on and held out, where no `dev` is
            given; see `seqtool.treebank.conllu.describe_held_out`.
        on_plan: called once with the names of all parts that are trained.
        on_estimate: called once with about how many seconds a new run without a limit of time
            takes, after the first hundred steps of a part.
        should_stop: asked with the step number of a run before each step, of several processes a
            few times a second; True interrupts.
        options: see `WordRecordOptions`. With several threads, as many parts are trained at once,
            each in a process, and share them.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    output = Path(output)
    device = hardware.choose_device(device)
    wanted = "a CoNLL-U file with trees"
    record = open_record(PRESETS, output, config, train_files, wanted=wanted, **options)
    threads = hardware.set_threads(record.threads)
    record = replace(record, config=_with_precision(record.config, device))
    run = _Run(
        output,
        record,
        device,
        threads,
        on_begin=on_part,
        on_event=on_event,
        should_stop=should_stop or (lambda step: False),
    )
    run.on_estimate = None if options.get("resume") else on_estimate
    before: TreebankRecord[PipelineConfig] | None = None
    if options.get("resume"):
        before = TreebankRecord.read_as(output, PipelineConfig, KIND)
        _refuse_too_late(output, before.config, record.config)
        record.write(output)
    else:
        with storage.replacing(output):
            run.check_treebanks(on_held_out)
            record.write(output)
    try:
        return run.run(on_plan)
    except Interrupted as stopped:
        hint = f"continue with: {runtime.resuming('train-parser', output)}"
        raise Interrupted(stopped.message, hint=hint) from stopped
    except (ConfigError, DataError, ModelError):
        if before is not None:  # what was given anew is refused: the run is as it was
            before.write(output)
        raise
    finally:
        hardware.set_threads(threads)


def _refuse_too_late(output: Path, before: PipelineConfig, now: PipelineConfig) -> None:
    """Refuse settings of what has been done already, and would be done otherwise now.

    Raises:
        ConfigError: the treebank was tagged by another number of folds or taggers.
    """
    for name, file in (("folds", "train.conllu"), ("taggers", "dev.conllu")):
        old, new = getattr(before, name), getattr(now, name)
        if old != new and (output / TREEBANK / file).is_file():
            raise ConfigError(
                f"{name} was {old} when the treebank was tagged, not {new}",
                hint=f"leave out {name}, or start again with --force",
            )


class _Run:
    """One run: what is trained before the parsers, the treebank with predicted tags, the parsers.

    Args:
        output: the model directory.
        record: what is trained.
        device: torch device.
        threads: those of the CPU, shared out among what is trained at once.
        listeners: of `run_jobs`.
    """

    def __init__(
        self,
        output: Path,
        record: TreebankRecord[PipelineConfig],
        device: str,
        threads: int,
        **listeners: Any,
    ) -> None:
        self.output, self.record, self.config = output, record, record.config
        self.device, self.threads, self.listeners = device, threads, listeners
        self.treebank = output / TREEBANK
        self.seconds: float | None = None  # of a part with a share of 1, where there is a limit
        self.on_estimate: Callable[[float], None] | None = None
        self.listeners["on_event"] = partial(self.hear, listeners["on_event"])
        self.steps = 0  # of the tagger
        self.shares = 0.0  # of all parts, as far as they are not trained at once

    def check_treebanks(self, on_held_out: Callable[[int, int], None]) -> None:
        """Read all treebanks, so that what is broken is found before anything is trained."""
        sentences = self.sentences(self.record.train)
        check_folds(len(sentences), self.config.folds)
        if self.record.dev is not None:
            self.sentences([self.record.dev])
        else:
            num_dev = sum(is_dev for _, is_dev in held_out(sentences))
            on_held_out(len(sentences) - num_dev, num_dev or len(sentences))

    def sentences(self, files: Sequence[str]) -> list[Sentence]:
        """Return the sentences of a treebank."""
        return list(read_conllu(files, skip_invalid=self.record.skip_invalid))

    def run(self, on_plan: Callable[[Sequence[str]], None]) -> TrainedPipeline:
        """Train all parts; those that are trained already take little time."""
        record, config = self.record, self.config
        first = [*self.members("tagger"), *self.members("segmenter")]
        if self.write_treebank():
            first += self.members("multiword")
        parsers = [name for part in TRAINED_AS if part in PARSERS for name in self.members(part)]
        folds = [f"fold {fold + 1} of {config.folds}" for fold in range(config.folds)]
        self.shares = self.time_of([*first, *folds]) + self.time_of(parsers)
        if (limit := config.limit_seconds) is not None:
            self.seconds, self.on_estimate = limit / self.shares, None
        if (train := self.treebank / "train.conllu").is_file():
            folds = []
        on_plan([*first, *folds, *parsers])
        trained = self.train([*map(self.job, first), *map(self.fold, range(len(folds)))])
        if folds:
            write_conllu(in_order([trained[fold] for fold in folds]), train)
        shutil.rmtree(self.output / JACKKNIFE, ignore_errors=True)
        dev = self.treebank / "dev.conllu"
        if record.dev is not None and not dev.is_file():
            tagger = open_part(self.output, "tagger", config.taggers, Tagger)
            write_conllu(tagger.tag_stream(self.sentences([record.dev]), retag=True), dev)
        trained |= self.train([self.job(name) for name in parsers])
        members = (name for part in TRAINED_AS for name in self.members(part))
        parts = {name: trained[name] for name in members if name in trained}
        pipeline = open_pipeline(self.output, config)
        scores = self.scores(parts, pipeline)
        header = Header(
            kind=KIND,
            config=to_dict(config),
            tokenizer={},
            scores=scores,
            data={
                **checkpoint.read_header(self.output / "tagger").data,
                **checkpoint.read_header(self.output / "segmenter").data,
            },
            command=record.command,
            num_parameters=sum(part.num_parameters for part in parts.values()),
            versions={"torch": torch.__version__},
            statistics=self.statistics(pipeline),
        )
        checkpoint.amend(self.output, header, model_card(header))
        seconds = sum(part.seconds for part in parts.values())
        is_fit = all(part.is_fit for part in parts.values())
        return TrainedPipeline(self.output, scores, seconds, header.num_parameters, is_fit)

    def write_treebank(self) -> bool:
        """Write what parts read beside the treebank, and tell whether multiword/ is needed."""
        sentences = self.sentences(self.record.train)
        self.treebank.mkdir(exist_ok=True)
        write_conllu(sentences, self.treebank / "gold.conllu")
        if not self.config.multiwords or share_of_both(sentences) < LEAST_SHARE:
            return False
        write_conllu(map(surface_sentence, sentences), self.treebank / "surface.conllu")
        if self.record.dev is not None:
            dev = map(surface_sentence, self.sentences([self.record.dev]))
            write_conllu(dev, self.treebank / "surface-dev.conllu")
        return True

    def members(self, part: str) -> list[str]:
        """Return the folders of the members of a part."""
        return folders(part, getattr(self.config, f"{part}s"))

    def num_processes(self, num_jobs: int) -> int:
        """Return how many of so many parts are trained at once."""
        is_alone = self.device != "cpu" or runtime.place().size > 1
        return 1 if is_alone else min(self.threads, num_jobs)

    def hear(self, on_event: Callable[[Event, str], None], event: Event, name: str) -> None:
        """Pass an event on, and tell once how long all parts take, by the first steps of a tagger.

        One of the small parts would say less: its first steps are mostly the start.
        """
        on_event(event, name)
        if self.on_estimate is None or name != "tagger":
            return
        if isinstance(event, RunStarted):
            self.steps = event.total_steps
        elif isinstance(event, StepDone) and event.step >= ESTIMATE_STEPS:
            seconds = event.seconds_left * self.steps / max(1, self.steps - event.step)
            self.on_estimate(seconds / self.share_of(name) * self.shares)
            self.on_estimate = None

    def share_of(self, name: str) -> float:
        """Return the share of a part: `tagger-2`, `fold 1 of 5`."""
        part = name.replace("-", " ").split()[0]
        if part in PARSERS:
            model = getattr(self.config, part).model
            part = "linear" if model.classifier == "linear" else model.decoder
        return SHARES[part]

    def time_of(self, names: Sequence[str]) -> float:
        """Return the time of parts, as many at once as there are threads, in shares."""
        shares = list(map(self.share_of, names))
        return max(sum(shares) / self.num_processes(len(names)), *shares)

    def limit_of(self, name: str) -> str | None:
        """Return the limit of time of a part, where there is one of all."""
        if self.seconds is None:
            return None
        return f"{max(0.1, self.seconds * self.share_of(name)):.1f}s"

    def train(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """Train parts: at once, as far as there are threads, and with what these have to share."""
        num_processes = self.num_processes(len(jobs))
        each = self.threads // num_processes
        results = run_jobs(jobs, num_processes=num_processes, threads=each, **self.listeners)
        hardware.set_threads(each)  # tags of several threads might differ in a last bit
        return results

    def job(self, folder: str) -> Job:
        """Return the job that trains a member of a part, or goes on with it."""
        part, _, number = folder.partition("-")
        record, config = self.record, getattr(self.config, part)
        training = replace(config.training, seed=config.training.seed + int(number or 1) - 1)
        if self.seconds is not None:
            training = replace(training, time_limit=self.limit_of(folder))
        is_begun = (self.output / folder / checkpoint.RUN).is_file()
        arguments = {
            "train_files": record.train,
            "output": self.output / folder,
            "config": replace(config, training=training),
            "dev": record.dev,
            "resume": is_begun,
            "force": not is_begun,  # what a process that was killed has left
            "skip_invalid": record.skip_invalid,
            "device": self.device,
            "command": record.command,
        }
        if part == "multiword" or part in PARSERS:  # what is made of the treebank
            names = ("surface", "surface-dev") if part == "multiword" else ("train", "dev")
            train, dev = (self.treebank / f"{name}.conllu" for name in names)
            arguments |= {"train_files": [str(train)], "dev": dev if record.dev else None}
        if part in PARSERS:
            arguments["gold_tags"] = self.treebank / "gold.conllu"
        has_vectors = part not in PARSERS or config.model.classifier == "neural"
        if part != "segmenter" and has_vectors and not is_begun:
            arguments["embeddings"] = record.embeddings
        return Job(folder, TRAINED_AS[part][1], arguments)

    def fold(self, fold: int) -> Job:
        """Return the job that tags a fold of the treebank by a tagger that does not see it."""
        name = f"fold {fold + 1} of {self.config.folds}"
        arguments = {
            "files": self.record.train,
            "skip_invalid": self.record.skip_invalid,
            "output": self.output,
            "seed": self.config.tagger.training.seed,
            "time_limit": self.limit_of(name),
            "fold": fold,
            "folds": self.config.folds,
            "embeddings": self.record.embeddings,
            "device": self.device,
        }
        return Job(name, _tag_fold, arguments)

    def statistics(self, pipeline: Pipeline) -> dict[str, Any]:
        """Fit what is to be known of a vote to the validation part, with predicted tags."""
        if not isinstance(pipeline.parser, Vote):
            return {}
        if self.record.dev is not None:
            sentences = list(read_conllu(self.treebank / "dev.conllu"))
        else:  # what the parsers have held out
            all_sentences = read_conllu(self.treebank / "train.conllu")
            sentences = [sentence for sentence, is_dev in held_out(all_sentences) if is_dev]
        if not any(len(sentence) > 1 for sentence in sentences):
            return {}
        return {CALIBRATIONS: calibrations_to_json(pipeline.parser.fit_calibrations(sentences))}

    def scores(self, parts: Mapping[str, Any], pipeline: Pipeline) -> dict[str, float]:
        """Scores from the raw text of the validation part on; without one, those of the parts."""
        if self.record.dev is None:
            return {
                f"{name}_{score}": value
                for name, part in parts.items()
                for score, value in part.scores.items()
                if score.startswith("dev_")
            }
        gold = self.sentences([self.record.dev])
        parsed = pipeline.parse_stream(pipeline.segment([raw_text(gold)]))
        evaluation = evaluate_parser(gold, (item for item in parsed if isinstance(item, Sentence)))
        return {f"dev_{name.lower()}": evaluation.scores[name].f1 for name in METRICS}


def _with_precision(config: PipelineConfig, device: str) -> PipelineConfig:
    """Return settings with the precision of all parts decided, so that `run.json` names it."""
    decided: dict[str, Any] = {
        part: with_precision(getattr(config, part), device, kind)
        for part, (kind, _) in TRAINED_AS.items()
    }
    return replace(config, **decided)


def _tag_fold(
    files: Sequence[str],
    *,
    skip_invalid: bool,
    output: Path,
    seed: int,
    threads: int | None,
    time_limit: str | None,
    **options: Any,
) -> list[Sentence]:
    """Tag a fold of the treebank in `files`; see `tagged_fold`."""
    hardware.set_threads(threads)
    sentences = list(read_conllu(files, skip_invalid=skip_invalid))
    return tagged_fold(
        sentences,
        directory=output / JACKKNIFE,
        config=fold_config(seed=seed, time_limit=time_limit),
        **options,
    )
