"""`seqtool train-lm`: train a neural language model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    OutputOption,
    SeedOption,
    ThreadsOption,
    note,
    print_settings,
)
from seqtool.cli.training_options import (
    LearningRateOption,
    ListSettingsOption,
    MaxMinutesOption,
    PatienceOption,
    ResumeOption,
    any_setting,
    check_resume,
    given_settings,
    report,
    setting,
    stop_after,
)
from seqtool.core import runtime

# option -> the setting it stands for
SETTINGS = {
    "cell": "model.cell",
    "hidden": "model.hidden_size",
    "embedding": "model.embedding_size",
    "layers": "model.layers",
    "projection": "model.projection_size",
    "depth": "model.depth",
    "tied": "model.tied",
    "output_layer": "model.output.layer",
    "unit": "data.unit",
    "vocab_size": "data.vocab_size",
    "batch_size": "data.batch_size",
    "bptt": "data.bptt",
    "epochs": "training.epochs",
    "optimiser": "training.optimiser",
    "lr": "training.learning_rate",
    "schedule": "training.schedule",
    "clip": "training.clip_norm",
    "patience": "training.patience",
    "precision": "training.precision",
    "seed": "training.seed",
}


def train_lm(
    corpus: Annotated[
        str | None,
        typer.Argument(
            metavar="CORPUS",
            help="A prepared corpus, a text file, or a folder with train, valid and test files; "
            "without it, the shipped English sample.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Path("runs/lm"),
    cell: Annotated[
        str | None,
        setting("The network's cell (default lstm).", metavar="rnn|lstm|gru|rhn|window"),
    ] = None,
    config: Annotated[
        str | None,
        setting("A recipe by name, or a YAML file of settings.", "--config", metavar="NAME|FILE"),
    ] = None,
    set_: Annotated[list[str] | None, any_setting("model.tied=true")] = None,
    list_settings: ListSettingsOption = False,
    resume: ResumeOption = False,
    force: ForceOption = False,
    max_minutes: MaxMinutesOption = None,
    hidden: Annotated[int | None, setting("Units per layer.", metavar="N")] = None,
    embedding: Annotated[int | None, setting("Embedding width.", metavar="N")] = None,
    layers: Annotated[int | None, setting("Stacked layers.", metavar="N")] = None,
    projection: Annotated[
        int | None, setting("Project each layer of lstm to this width.", metavar="N")
    ] = None,
    depth: Annotated[int | None, setting("Recurrence depth of rhn.", metavar="N")] = None,
    tied: Annotated[
        bool | None, setting("Output weights are the embedding's.", "--tied/--untied")
    ] = None,
    output_layer: Annotated[
        str | None,
        setting(
            "The output layer; adaptive, nce and blackout are for large vocabularies.",
            metavar="full|adaptive|nce|blackout|mixture|maxent",
        ),
    ] = None,
    dropout: Annotated[
        float | None, setting("Dropout on the layers' inputs and on the output.", metavar="P")
    ] = None,
    unit: Annotated[
        str | None,
        setting("Tokens of a raw text.", metavar="word|char|byte|bpe|unigram"),
    ] = None,
    vocab_size: Annotated[int | None, setting("Vocabulary of a raw text.", metavar="N")] = None,
    batch_size: Annotated[int | None, setting("Parallel streams.", metavar="N")] = None,
    bptt: Annotated[int | None, setting("Tokens per training window.", metavar="N")] = None,
    epochs: Annotated[int | None, setting("Passes over the text.", metavar="N")] = None,
    optimiser: Annotated[
        str | None,
        setting(
            "The optimiser.",
            "--optimiser",
            "--optimizer",
            metavar="sgd|adagrad|rmsprop|adam|adamw|asgd",
        ),
    ] = None,
    lr: LearningRateOption = None,
    schedule: Annotated[
        str | None,
        setting(
            "Learning rate schedule.", metavar="constant|divide|plateau|cyclic|one-cycle|cosine"
        ),
    ] = None,
    clip: Annotated[float | None, setting("Gradient norm limit; 0 is off.", metavar="X")] = None,
    patience: PatienceOption = None,
    precision: Annotated[
        str | None, setting("Precision of products.", metavar="auto|float32|bf16")
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Also write TensorBoard events to OUTPUT/tensorboard."),
    ] = False,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Train a neural language model: rnn, lstm, gru, rhn (recurrent highway) or window."""
    given = dict(locals())
    if list_settings:
        from seqtool.lm.neural.config import NeuralLMConfig

        print_settings(NeuralLMConfig)
        return
    check_resume(resume=resume, force=force)
    from seqtool.lm.neural.recipes import resolve

    values = given_settings(given, SETTINGS)
    if dropout is not None:
        values |= {"model.dropout_input": dropout, "model.dropout_output": dropout}
    settings = resolve(config, values, set_ or [], run=output if resume else None)
    if corpus is None and not resume:
        from seqtool.text.sample import sample_text

        corpus = str(sample_text("en", "train").parent)
        note("no corpus given: training on the shipped English sample")
    _train(
        corpus,
        output,
        settings,
        resume=resume,
        force=force,
        max_minutes=max_minutes,
        tensorboard=tensorboard,
        device=device,
        threads=threads,
        as_json=json,
    )


def _train(
    corpus: str | None,
    output: Path,
    settings: Any,
    *,
    resume: bool,
    force: bool,
    max_minutes: float | None,
    tensorboard: bool,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from contextlib import ExitStack

    from seqtool.core.errors import counted
    from seqtool.core.progress import Display, Event, RunStarted, TensorBoard
    from seqtool.lm.neural.train import train_lm as train

    should_stop = stop_after(max_minutes)
    with ExitStack() as stack:
        listeners: list[Callable[[Event], None]] = [stack.enter_context(Display()).show]
        if tensorboard:
            listeners.append(stack.enter_context(TensorBoard(output / "tensorboard")).show)

        def show(event: Event) -> None:
            if isinstance(event, RunStarted) and not resume:
                _note_preparation(output / "corpus")
            for listener in listeners:
                listener(event)

        trained = train(
            corpus,
            output,
            settings,
            resume=resume,
            force=force,
            device=device,
            threads=threads,
            on_event=show,
            should_stop=should_stop,
            command=f"{runtime.program()} {shlex.join(sys.argv[1:])}",
        )
    report(
        trained,
        [
            f"valid perplexity {trained.scores['valid_perplexity']:.2f} in one stream, as eval-ppl "
            f"measures it; {counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
            f"next: seqtool eval-ppl -m {trained.path}  or  seqtool generate -m {trained.path}",
        ],
        as_json=as_json,
        epochs=trained.epochs,
        parameters=trained.num_parameters,
    )


def _note_preparation(path: Path) -> None:
    """Say what was made of a raw text; nothing of a corpus that was prepared before."""
    if not (path / "corpus.json").is_file():
        return
    from seqtool.cli.prepare import describe_draw
    from seqtool.core.errors import counted
    from seqtool.text.prepared import PreparedCorpus

    info = PreparedCorpus.open(path).info
    noun = {"word": "word", "char": "character", "byte": "byte"}.get(info["unit"], "piece")
    sizes = []
    for name, part in info["splits"].items():
        num = part["tokens"] - part["sentences"]  # without `</s>`
        share = f" ({part['unknown'] / max(1, num):.2%} unknown)" if part["unknown"] else ""
        sizes.append(f"{name} {counted(num, noun)}{share}")
    how = "split by file" if info["shares"] is None else describe_draw(info)
    vocabulary = counted(info["vocabulary_size"], "symbol")
    note(f"prepared {path}: {', '.join(sizes)}; vocabulary of {vocabulary}; {how}")
