"""Training of all that raw text needs: `train_pipeline`.

segmenter/              trained on the treebank; others of other seeds in segmenter-2/ and so on
tagger/                 likewise; tagger-2/ ...
jackknife/              taggers of parts of it, removed when they are done
treebank/train.conllu   the treebank with the tags that those gave it; its own are in MISC
treebank/dev.conllu     the validation part with those of the taggers together
parser/                 trained on both of these, since it will read predicted tags; parser-2/ ...
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqtool import checkpoint, runtime, storage
from seqtool.checkpoint import Header
from seqtool.config import from_dict, to_dict
from seqtool.corpora.conllu import read_conllu, write_conllu
from seqtool.corpora.sentence import Sentence
from seqtool.errors import Interrupted
from seqtool.parsing.config import check_encoder
from seqtool.parsing.evaluate import evaluate_parser
from seqtool.parsing.gold import tell_right_tags
from seqtool.parsing.pipeline.config import KIND, PipelineConfig, folders, preset
from seqtool.parsing.pipeline.model import model_card, open_pipeline, open_tagger
from seqtool.parsing.runs import RunRecord, open_record
from seqtool.parsing.segmentation.gold import raw_text
from seqtool.parsing.segmentation.train import train_segmenter
from seqtool.parsing.tagging.jackknife import fold_config, jackknifed
from seqtool.parsing.tagging.train import train_tagger
from seqtool.parsing.train import train_parser
from seqtool.parsing.word_states import FOLDER, check_given
from seqtool.progress import Event

JACKKNIFE, TREEBANK = "jackknife", "treebank"
METRICS = ("Words", "Sentences", "UPOS", "XPOS", "UFeats", "Lemmas", "UAS", "LAS")


@dataclass(frozen=True)
class TrainedPipeline:
    """What `train_pipeline` returns.

    Attributes:
        path: the model directory.
        scores: F1 in percent on the raw text of the validation part (`dev_words`, `dev_las` ...);
            without one, those of the parts on what they held out.
        seconds: training time of the parts, validation included, over all continuations; without
            that of the jackknifed taggers.
        num_parameters: trained numbers.
    """

    path: Path
    scores: dict[str, float]
    seconds: float
    num_parameters: int


def train_pipeline(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/parser",
    config: PipelineConfig | None = None,
    *,
    dev: str | Path | None = None,
    embeddings: str | Path | None = None,
    lm: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    skip_invalid: bool = False,
    device: str = "auto",
    threads: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    on_part: Callable[[str], None] = lambda part: None,
    should_stop: Callable[[int], bool] | None = None,
    command: str = "",
) -> TrainedPipeline:
    """Train segmenters, taggers with a lemmatizer, and parsers on one treebank.

    Args:
        train_files: CoNLL-U with tags, lemmas and trees. A run that is resumed knows its own.
        output: the model directory.
        config: all settings, those of the preset `accurate` if not given; those of the run when one
            is resumed.
        dev: CoNLL-U by which the best epochs are chosen; without it, each part keeps a tenth of the
            treebank for that.
        embeddings: a file of word vectors that forms begin with, in tagger and parser.
        lm: a neural language model whose states after words are read too, by tagger and parser;
            it is copied into their directories.
        resume: continue the run in `output` where it was saved.
        force: replace a run that is there.
        skip_invalid: leave out broken sentences.
        device: auto, cpu, cuda or mps.
        threads: CPU threads; None leaves the choice to torch.
        on_event: called with every event of every run.
        on_part: called with what is trained next.
        should_stop: asked with the step number of a run before each step; True interrupts.
        command: what the user typed, for the model card.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or `should_stop`; the state is saved.
        DataError, ConfigError, ModelError, TrainingError, OutputError: as their messages say.
    """
    output = Path(output)
    record = open_record(
        output,
        KIND,
        config,
        from_dict(PipelineConfig, preset("accurate")),
        train_files,
        wanted="a CoNLL-U file with trees",
        dev=dev,
        embeddings=embeddings,
        lm=lm,
        resume=resume,
        force=force,
        skip_invalid=skip_invalid,
        threads=threads,
        command=command,
    )
    stage = _Stages(output, record, device, on_event, on_part, should_stop)
    if resume:
        record.write(output)
    else:
        stage.check_lm()
        with storage.replacing(output):
            stage.check_treebanks()
            record.write(output)
    try:
        return stage.run()
    except Interrupted as stopped:
        raise Interrupted(
            stopped.message, hint=f"continue with: seqtool train-parser --resume -o {output}"
        ) from stopped


class _Stages:
    """The stages of one run, with the arguments of `train_pipeline`."""

    def __init__(
        self,
        output: Path,
        record: RunRecord[PipelineConfig],
        device: str,
        on_event: Callable[[Event], None],
        on_part: Callable[[str], None],
        should_stop: Callable[[int], bool] | None,
    ) -> None:
        self.output, self.record, self.config = output, record, record.config
        self.device, self.on_part = device, on_part
        self.shared: dict[str, Any] = {"on_event": on_event, "should_stop": should_stop}

    def check_treebanks(self) -> None:
        """Read all treebanks, so that what is broken is found before anything is trained."""
        for files in (self.record.train, *([[self.record.dev]] if self.record.dev else [])):
            for _ in self.sentences(files):
                pass

    def check_lm(self) -> None:
        """Open the language model, if there is one, for the same reason."""
        if self.record.lm is not None:
            check_encoder(self.config.parser)
            check_given(self.record.lm, self.output)

    def sentences(self, files: Sequence[str]) -> list[Sentence]:
        """The sentences of a treebank."""
        return list(read_conllu(files, skip_invalid=self.record.skip_invalid))

    def run(self) -> TrainedPipeline:
        """Go through all stages; those that are done already take little time."""
        record, config = self.record, self.config
        parts = {
            folder: self.part(folder, train_segmenter, record.train, record.dev)
            for folder in folders("segmenter", config.segmenters)
        }
        vectors = {"embeddings": record.embeddings}
        for folder in folders("tagger", config.taggers):
            parts[folder] = self.part(
                folder, train_tagger, record.train, record.dev, lm=record.lm, **vectors
            )
        # from here on it need not be where it was
        lm = None if record.lm is None else self.output / "tagger" / FOLDER
        train = self.output / TREEBANK / "train.conllu"
        if not train.is_file():
            self.write_predicted_tags(train, lm)
        dev = None
        if record.dev is not None:
            dev = self.output / TREEBANK / "dev.conllu"
            if not dev.is_file():
                tagger = open_tagger(self.output, config)
                write_conllu(tagger.tag_stream(self.sentences([record.dev]), retag=True), dev)
        for folder in folders("parser", config.parsers):
            parts[folder] = self.part(folder, train_parser, [str(train)], dev, lm=lm, **vectors)
        scores = self.scores(parts)
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
        )
        checkpoint.amend(self.output, header, model_card(header))
        seconds = sum(part.seconds for part in parts.values())
        return TrainedPipeline(self.output, scores, seconds, header.num_parameters)

    def part(
        self,
        folder: str,
        train: Callable[..., Any],
        files: Sequence[str],
        dev: str | Path | None,
        **options: Any,
    ) -> Any:
        """Train a part, or one of its members, or go on with it."""
        self.on_part(folder)
        path = self.output / folder
        is_begun = (path / checkpoint.RUN).is_file()
        return train(
            files,
            path,
            self.config_of(folder),
            dev=dev,
            resume=is_begun,
            skip_invalid=self.record.skip_invalid,
            device=self.device,
            threads=self.record.threads,
            command=self.record.command,
            **({} if is_begun else options),
            **self.shared,
        )

    def config_of(self, folder: str) -> Any:
        """The settings of a part; those of its members differ in the seed."""
        part, _, number = folder.partition("-")
        config = getattr(self.config, part)
        seed = config.training.seed + int(number or 1) - 1
        return dataclasses.replace(config, training=dataclasses.replace(config.training, seed=seed))

    def write_predicted_tags(self, path: Path, lm: Path | None) -> None:
        """Write the treebank with tags of taggers that did not see them."""
        self.on_part("taggers of parts of the treebank, for the parser to learn from")
        chosen = runtime.choose_device(self.device)
        sentences = self.sentences(self.record.train)
        tagged = jackknifed(
            sentences,
            self.output / JACKKNIFE,
            fold_config(seed=self.config.tagger.training.seed),
            folds=self.config.folds,
            device=chosen,
            lm=lm,
            **self.shared,
        )
        for sentence, right in zip(tagged, sentences, strict=True):
            tell_right_tags(sentence, right)
        path.parent.mkdir(exist_ok=True)
        write_conllu(tagged, path)
        shutil.rmtree(self.output / JACKKNIFE)

    def scores(self, parts: Mapping[str, Any]) -> dict[str, float]:
        """Scores from the raw text of the validation part on; without one, those of the parts."""
        if self.record.dev is None:
            return {
                f"{name}_{score}": value
                for name, part in parts.items()
                for score, value in part.scores.items()
                if score.startswith("dev_")
            }
        pipeline = open_pipeline(self.output, self.config)
        gold = self.sentences([self.record.dev])
        parsed = pipeline.parse_stream(pipeline.segment([raw_text(gold)]))
        evaluation = evaluate_parser(gold, (item for item in parsed if isinstance(item, Sentence)))
        return {f"dev_{name.lower()}": evaluation.scores[name].f1 for name in METRICS}
