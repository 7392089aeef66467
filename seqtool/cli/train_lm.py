"""`seqtool train-lm`: train a neural language model."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool import processes
from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    OutputOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
    print_settings,
)

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


def _setting(help: str, *names: str, panel: str = "Settings", metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False
    )


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
        _setting("The network's cell (default lstm).", metavar="rnn|lstm|gru|rhn|window"),
    ] = None,
    config: Annotated[
        str | None,
        _setting("A recipe by name, or a YAML file of settings.", "--config", metavar="NAME|FILE"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        _setting("Any setting, such as model.tied=true; repeatable.", "--set", metavar="KEY=VALUE"),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option("--list-settings", help="Print every setting with its meaning, and exit."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the output directory.")
    ] = False,
    force: ForceOption = False,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="N", help="Save and stop after this long; continue with --resume."
        ),
    ] = None,
    hidden: Annotated[int | None, _setting("Units per layer.", metavar="N")] = None,
    embedding: Annotated[int | None, _setting("Embedding width.", metavar="N")] = None,
    layers: Annotated[int | None, _setting("Stacked layers.", metavar="N")] = None,
    projection: Annotated[
        int | None, _setting("Project each layer of lstm to this width.", metavar="N")
    ] = None,
    depth: Annotated[int | None, _setting("Recurrence depth of rhn.", metavar="N")] = None,
    tied: Annotated[
        bool | None, _setting("Output weights are the embedding's.", "--tied/--untied")
    ] = None,
    output_layer: Annotated[
        str | None,
        _setting(
            "The output layer; adaptive, nce and blackout are for large vocabularies.",
            metavar="full|adaptive|nce|blackout|mixture|maxent",
        ),
    ] = None,
    dropout: Annotated[
        float | None, _setting("Dropout on the layers' inputs and on the output.", metavar="P")
    ] = None,
    unit: Annotated[
        str | None,
        _setting("Tokens of a raw text.", metavar="word|char|byte|bpe|unigram"),
    ] = None,
    vocab_size: Annotated[int | None, _setting("Vocabulary of a raw text.", metavar="N")] = None,
    batch_size: Annotated[int | None, _setting("Parallel streams.", metavar="N")] = None,
    bptt: Annotated[int | None, _setting("Tokens per training window.", metavar="N")] = None,
    epochs: Annotated[int | None, _setting("Passes over the text.", metavar="N")] = None,
    optimiser: Annotated[
        str | None,
        _setting(
            "The optimiser.",
            "--optimiser",
            "--optimizer",
            metavar="sgd|adagrad|rmsprop|adam|adamw|asgd",
        ),
    ] = None,
    lr: Annotated[float | None, _setting("Learning rate.", metavar="X")] = None,
    schedule: Annotated[
        str | None,
        _setting(
            "Learning rate schedule.", metavar="constant|divide|plateau|cyclic|one-cycle|cosine"
        ),
    ] = None,
    clip: Annotated[float | None, _setting("Gradient norm limit; 0 is off.", metavar="X")] = None,
    patience: Annotated[
        int | None, _setting("Stop after N epochs without improvement; 0 is off.", metavar="N")
    ] = None,
    precision: Annotated[
        str | None, _setting("Precision of products.", metavar="auto|float32|bf16")
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
        from seqtool.neural_lm.config import NeuralLMConfig

        print_settings(NeuralLMConfig)
        return
    if resume and force:
        raise typer.BadParameter("--resume continues a run and --force replaces it: give one")
    from seqtool.neural_lm.recipes import resolve

    values = {name: given[option] for option, name in SETTINGS.items() if given[option] is not None}
    if dropout is not None:
        values |= {"model.dropout_input": dropout, "model.dropout_output": dropout}
    settings = resolve(config, values, set_ or [], run=output if resume else None)
    if corpus is None and not resume:
        from seqtool.corpora.sample import sample_text

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

    from seqtool.errors import counted
    from seqtool.neural_lm.train import train_lm as train
    from seqtool.progress import Display, Event, RunStarted, TensorBoard

    deadline = None if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    with ExitStack() as stack:
        listeners = [stack.enter_context(Display()).show]
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
            should_stop=lambda step: deadline is not None and time.monotonic() >= deadline,
            command=f"{processes.program()} {shlex.join(sys.argv[1:])}",
        )
    if as_json:
        emit(
            {
                "model": str(trained.path),
                "seconds": trained.seconds,
                "epochs": trained.epochs,
                "parameters": trained.num_parameters,
                **trained.scores,
            }
        )
        return
    note(
        f"valid perplexity {trained.scores['valid_perplexity']:.2f} in one stream, as eval-ppl "
        f"measures it; {counted(trained.num_parameters, 'parameter')}; model in {trained.path}"
    )
    note(f"next: seqtool eval-ppl -m {trained.path}  or  seqtool generate -m {trained.path}")
    print(trained.path)


def _note_preparation(path: Path) -> None:
    """Say what was made of a raw text; nothing of a corpus that was prepared before."""
    if not (path / "corpus.json").is_file():
        return
    from seqtool.cli.prepare import describe_draw
    from seqtool.corpora.prepared import PreparedCorpus
    from seqtool.errors import counted

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
