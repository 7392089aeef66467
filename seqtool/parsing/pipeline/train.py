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

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import torch

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.checkpoint import Header
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.core.progress import Event, shows_progress
from seqtool.parsing.parser.calibration import to_json
from seqtool.parsing.parser.config import SMALL_SENTENCES
from seqtool.parsing.parser.model import CALIBRATIONS
from seqtool.parsing.parser.train import PARSER, train_parser
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.config import (
    KIND,
    PARSERS,
    PARTS,
    PRESETS,
    PipelineConfig,
    folders,
)
from seqtool.parsing.pipeline.jobs import Job, Team
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
from seqtool.parsing.tagger.train import (
    TAGGER,
    check_folds,
    fold_config,
    in_order,
    tagged_fold,
    train_tagger,
)
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

Plan = Sequence[Mapping[str, float]]
# seconds of an epoch over 1,500 sentences of the shipped sample on one core; only how they compare
# with one another matters
EPOCH_SECONDS = {
    **{"segmenter": 8.0, "multiword": 20.0, "tagger": 20.0},
    **{"parser": 20.0, "graph": 20.0, "perceptron": 10.0},
}
ENCODER_SECONDS = 60.0  # of a parser with an encoder
ADVERSARY_FACTOR = 1.8  # of a tagger that learns from an adversary
FOLD_SECONDS = 75.0  # of a tagger of folds, all its epochs over the whole treebank
# what the parts are trained as
KINDS: dict[str, Kind[Any]] = {
    "segmenter": SEGMENTER,
    "multiword": TAGGER,
    "tagger": TAGGER,
    "parser": PARSER,
    "graph": PARSER,
    "perceptron": PARSER,
}
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
    on_plan: Callable[[Plan, int], None] = lambda stages, at_once: None,
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
        on_plan: called once with the stages of the run, each part of them -> about what it costs,
            and how many parts are trained at once.
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
    record = dataclasses.replace(record, config=_with_precision(record.config, device))
    team = Team(on_part, on_event, should_stop or (lambda step: False))
    stage = _Stages(output, record, device, threads, team)
    before: TreebankRecord[PipelineConfig] | None = None
    if options.get("resume"):
        before = TreebankRecord.read_as(output, PipelineConfig, KIND)
        _refuse_too_late(output, before.config, record.config)
        record.write(output)
    else:
        with storage.replacing(output):
            stage.check_treebanks(on_held_out)
            record.write(output)
    try:
        with team:
            return stage.run(on_plan)
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


class _Stages:
    """The stages of one run; its CPU threads are shared out among what `team` trains at once."""

    def __init__(
        self,
        output: Path,
        record: TreebankRecord[PipelineConfig],
        device: str,
        threads: int,
        team: Team,
    ) -> None:
        self.output, self.record, self.config = output, record, record.config
        self.device, self.threads, self.team = device, threads, team

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

    def run(self, on_plan: Callable[[Plan, int], None]) -> TrainedPipeline:
        """Go through all stages; those that are done already take little time."""
        record, config = self.record, self.config
        treebank = self.output / TREEBANK
        train, dev = treebank / "train.conllu", None
        all_folds = self.folds()
        folds = [] if train.is_file() else all_folds
        taggers = self.parts("tagger", train_tagger, record.train, record.dev)
        segmenters = self.parts("segmenter", train_segmenter, record.train, record.dev)
        multiwords = self.multiwords()
        jobs = [*taggers, *segmenters, *multiwords, *folds]
        stages = (
            [job.name for job in jobs],
            [name for part in PARSERS for name in folders(part, getattr(config, f"{part}s"))],
        )
        plan = [{name: self.cost(name) for name in names} for names in stages]
        on_plan(plan, self.num_processes(len(jobs)))
        first = (*taggers, *segmenters, *multiwords, *all_folds)
        cost = self.cost_of_all([job.name for job in first]) + self.cost_of_all(stages[1])
        trained = self.train(self.limited(jobs, cost))
        if folds:
            treebank.mkdir(exist_ok=True)
            write_conllu(in_order([trained[fold.name] for fold in folds]), train)
        gold = treebank / "gold.conllu"
        if not gold.is_file():
            write_conllu(self.sentences(record.train), gold)
        shutil.rmtree(self.output / JACKKNIFE, ignore_errors=True)
        if record.dev is not None:
            dev = treebank / "dev.conllu"
            if not dev.is_file():
                tagger = open_part(self.output, "tagger", config.taggers, Tagger)
                write_conllu(tagger.tag_stream(self.sentences([record.dev]), retag=True), dev)
        parsers = [
            job
            for part in sorted(PARSERS, key=self.cost, reverse=True)  # so all end at about one time
            for job in self.parts(part, train_parser, [str(train)], dev, gold_tags=gold)
        ]
        trained |= self.train(self.limited(parsers, cost))
        members = (*segmenters, *multiwords, *taggers, *parsers)
        parts = {job.name: trained[job.name] for job in members}
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

    def num_processes(self, num_jobs: int) -> int:
        """Return how many of so many parts are trained at once."""
        is_alone = self.device != "cpu" or runtime.place().size > 1
        return 1 if is_alone else min(self.threads, num_jobs)

    def cost(self, name: str) -> float:
        """Return about what it costs to train a part: its folder, or `fold 1 of 5`."""
        part = name.partition("-")[0]
        if part not in EPOCH_SECONDS:
            return FOLD_SECONDS * (1 - 1 / self.config.folds)
        seconds = EPOCH_SECONDS[part]
        if part in PARSERS and getattr(self.config, part).model.encoder != "none":
            seconds = ENCODER_SECONDS
        elif part in ("tagger", "multiword") and getattr(self.config, part).learning.adversarial:
            seconds *= ADVERSARY_FACTOR
        return seconds * self.num_epochs(part)

    def num_epochs(self, part: str) -> int:
        """Return the epochs of a part; of a parser, those of a treebank of this size."""
        config = getattr(self.config, part)
        epochs: int = config.training.epochs
        if part not in PARSERS or not config.learning.small_epochs or not self.is_small:
            return epochs
        return int(config.learning.small_epochs)

    @cached_property
    def is_small(self) -> bool:
        """Whether the part of the treebank that is learnt from is a small one."""
        sentences = self.sentences(self.record.train)
        num_dev = 0
        if self.record.dev is None:
            num_dev = sum(is_dev for _, is_dev in held_out(sentences))
        return len(sentences) - num_dev < SMALL_SENTENCES

    def cost_of_all(self, names: Sequence[str]) -> float:
        """Return about what it costs to train parts, as many at once as there are threads."""
        costs = list(map(self.cost, names))
        return max([sum(costs) / max(1, self.num_processes(len(names))), *costs])

    def limited(self, jobs: Sequence[Job], cost: float) -> Sequence[Job]:
        """Return jobs with their shares of the time, if that is limited; `cost` is of all."""
        if (limit := self.config.limit_seconds) is None:
            return jobs
        shares = [max(0.1, limit * self.cost(job.name) / cost) for job in jobs]
        return [_with_limit(job, f"{share:.1f}s") for job, share in zip(jobs, shares, strict=True)]

    def train(self, jobs: Sequence[Job]) -> dict[str, Any]:
        """Train parts: at once, as far as there are threads, and with what these have to share."""
        num_processes = self.num_processes(len(jobs))
        each = self.threads // num_processes
        results = self.team.run(jobs, num_processes=num_processes, threads=each)
        hardware.set_threads(each)  # tags of several threads might differ in a last bit
        return results

    def parts(
        self,
        part: str,
        train: Callable[..., Any],
        files: Sequence[str],
        dev: str | Path | None,
        **given: Any,
    ) -> list[Job]:
        """Return the jobs that train the members of a part, by `train`, or go on with them."""
        jobs = []
        for folder in folders(part, getattr(self.config, f"{part}s")):
            is_begun = (self.output / folder / checkpoint.RUN).is_file()
            arguments = {
                "train_files": files,
                "output": self.output / folder,
                "config": self.config_of(folder),
                "dev": dev,
                "resume": is_begun,
                "force": not is_begun,  # what a process that was killed has left
                "skip_invalid": self.record.skip_invalid,
                "device": self.device,
                "command": self.record.command,
                **given,
            }
            if part != "segmenter" and not self._is_linear(part) and not is_begun:
                arguments["embeddings"] = self.record.embeddings
            jobs.append(Job(folder, train, arguments))
        return jobs

    def _is_linear(self, part: str) -> bool:
        """Return whether a part is a parser without vectors of words."""
        return part in PARSERS and getattr(self.config, part).model.classifier == "linear"

    def multiwords(self) -> list[Job]:
        """Return the jobs that train taggers of surface tokens, if the treebank needs them."""
        if not self.config.multiwords:
            return []
        sentences = self.sentences(self.record.train)
        if share_of_both(sentences) < LEAST_SHARE:
            return []
        treebank = self.output / TREEBANK
        treebank.mkdir(exist_ok=True)
        write_conllu(map(surface_sentence, sentences), train := treebank / "surface.conllu")
        dev = None
        if self.record.dev is not None:
            dev = treebank / "surface-dev.conllu"
            write_conllu(map(surface_sentence, self.sentences([self.record.dev])), dev)
        return self.parts("multiword", train_tagger, [str(train)], dev)

    def folds(self) -> list[Job]:
        """Return the jobs that tag each fold of the treebank by a tagger that does not see it."""
        num = self.config.folds
        arguments = {
            "files": self.record.train,
            "skip_invalid": self.record.skip_invalid,
            "output": self.output,
            "seed": self.config.tagger.training.seed,
            "folds": num,
            "embeddings": self.record.embeddings,
            "device": self.device,
        }
        return [
            Job(f"fold {fold + 1} of {num}", _tag_fold, {"fold": fold, **arguments})
            for fold in range(num)
        ]

    def config_of(self, folder: str) -> Any:
        """Return the settings of a part; those of its members differ in the seed."""
        part, _, number = folder.partition("-")
        config = getattr(self.config, part)
        seed = config.training.seed + int(number or 1) - 1
        return dataclasses.replace(config, training=dataclasses.replace(config.training, seed=seed))

    def statistics(self, pipeline: Pipeline) -> dict[str, Any]:
        """Fit what is to be known of a vote to the validation part, with predicted tags."""
        if not isinstance(pipeline.parser, Vote):
            return {}
        treebank = self.output / TREEBANK
        if self.record.dev is not None:
            sentences = list(read_conllu(treebank / "dev.conllu"))
        else:  # what the parsers have held out
            all_sentences = read_conllu(treebank / "train.conllu")
            sentences = [sentence for sentence, is_dev in held_out(all_sentences) if is_dev]
        if not any(len(sentence) > 1 for sentence in sentences):
            return {}
        return {CALIBRATIONS: to_json(pipeline.parser.fitted(sentences))}

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


def _with_limit(job: Job, limit: str | float | None) -> Job:
    """Return a job whose training has a limit of time; a fold's settings are made where it runs."""
    arguments = dict(job.arguments)
    if "config" in arguments:
        config = arguments["config"]
        training = dataclasses.replace(config.training, time_limit=limit)
        arguments["config"] = dataclasses.replace(config, training=training)
    else:
        arguments["time_limit"] = limit
    return dataclasses.replace(job, arguments=arguments)


def _with_precision(config: PipelineConfig, device: str) -> PipelineConfig:
    """Return settings with the precision of all parts decided, so that `run.json` names it."""
    decided: dict[str, Any] = {
        part: with_precision(getattr(config, part), device, KINDS[part]) for part in PARTS
    }
    return dataclasses.replace(config, **decided)


def _tag_fold(
    files: Sequence[str],
    *,
    skip_invalid: bool,
    output: Path,
    seed: int,
    threads: int | None,
    time_limit: str | float | None = None,
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
