"""`seqtool train-lm`: train a neural language model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.training import SETTINGS, TrainingOptions, report
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.core.progress import Event


@cli.takes_options(
    "seqtool.lm.neural.config:NeuralLMConfig",
    {
        "--cell": cli.option_for("model.cell", help="The network's cell (default lstm)."),
        "--hidden": "model.hidden_size",
        "--embedding": "model.embedding_size",
        "--projection": "model.projection_size",
        **cli.same_names("model.layers", "model.depth"),
        "--tied/--untied": "model.tied",
        "--output-layer": cli.option_for(
            "model.output.layer",
            help="The output layer; all but full and maxent are for large vocabularies.",
        ),
        "--dropout": cli.option_for(
            "model.dropout_input",
            "model.dropout_output",
            help="Dropout on the layers' inputs and on the output.",
            metavar="P",
        ),
        "--unit": cli.option_for("data.unit", help="Tokens of a raw text."),
        **cli.same_names("data.vocab_size", "data.batch_size", "data.bptt"),
        "--optimiser": cli.option_for("training.optimiser", help="The optimiser."),
        "--schedule": cli.option_for("training.schedule", help="Learning rate schedule."),
        "--clip": "training.clip_norm",
        **SETTINGS,
        "--precision": "training.precision",
    },
)
@examples(
    "seqtool train-lm corpora/my --cell rhn -o runs/my",
    "seqtool train-lm my.txt --cell lstm --hidden 200 --epochs 5",
    "seqtool train-lm corpora/ptb/words --config ptb-lstm-cpu -o runs/ptb",
    "seqtool train-lm --resume -o runs/my",
    "seqtool train-lm train.conllu --syntactic --dev dev.conllu -o runs/syntactic",
)
def train_lm(
    corpus: str | None = cli.argument(
        None, "A prepared corpus, a text or a folder of splits; else the sample.", "CORPUS"
    ),
    output: cli.OutputOption = Path("runs/lm"),
    config: str | None = cli.setting_option(
        None, "A recipe by name, or a YAML file of settings.", "NAME|FILE"
    ),
    syntactic: bool = cli.setting_option(
        False, "Train a model that parses as it reads: CORPUS is CoNLL-U with trees."
    ),
    dev: Path | None = cli.option(
        None, "With --syntactic: CoNLL-U by whose perplexity the best epoch is chosen.", "FILE"
    ),
    unlabelled: list[Path] | None = cli.setting_option(
        None, "With --syntactic: text or CoNLL-U without trees, learnt beside; repeatable.", "FILE"
    ),
    tensorboard: bool = cli.option(False, "Also write TensorBoard events to OUTPUT/tensorboard."),
    *,
    settings: dict[str, Any],
    options: TrainingOptions,
) -> None:
    """Train a neural language model: rnn, lstm, gru, rhn (recurrent highway) or window."""
    from seqtool.core.checkpoint import run_kind
    from seqtool.core.reading import is_corpus
    from seqtool.lm.neural.config import resolve

    if syntactic or (options.resume and run_kind(output) == "syntactic-lm"):
        return _train_syntactic((corpus, dev, unlabelled or ()), output, config, settings, options)
    if dev is not None or unlabelled:
        what = f"--{'unlabelled' if dev is None else 'dev'} is for --syntactic"
        raise ConfigError(what, hint="a corpus has its validation part: see prepare --valid")
    chosen = options.resolve(resolve, (config,), settings, output)
    if chosen is None:
        return
    if corpus is None and not options.resume:
        corpus = cli.stdin_or_sample("CORPUS", training="training on")
    if corpus is not None and is_corpus(corpus):
        from seqtool.lm.neural.train import PREPARATION
        from seqtool.text.prepared import PreparedCorpus, check_preparation

        given = {name.rpartition(".")[2] for name in options.typed_names(settings)}
        check_preparation(PreparedCorpus.open(corpus), chosen.data, PREPARATION, given)
    from seqtool.core.progress import RunStarted
    from seqtool.lm.neural.train import train_lm as train
    from seqtool.training.run import TensorBoard

    with TensorBoard(output / "tensorboard") if tensorboard else nullcontext() as board:

        def on_event(event: Event) -> None:
            if isinstance(event, RunStarted) and not options.resume:
                _note_preparation(output / "corpus")
            if board is not None:
                board.show(event)

        trained = options.run(train, corpus, output, chosen, on_event=on_event)
    perplexity = trained.scores["valid_perplexity"]
    report(
        trained,
        options.json,
        f"valid perplexity {perplexity:.2f} in one stream, as eval-ppl measures it",
        next=("eval-ppl -m {}", "generate -m {}"),
    )


def _train_syntactic(
    data: tuple[str | None, Path | None, Sequence[Path]],
    output: Path,
    config: str | None,
    settings: dict[str, Any],
    options: TrainingOptions,
) -> None:
    """Train a language model that parses."""
    corpus, dev, unlabelled = data
    from seqtool.cli.training import note_data
    from seqtool.lm.neural.config import recipe_path
    from seqtool.parsing.syntactic.train import PRESETS, train_syntactic
    from seqtool.text.datasets import sample_treebank

    def resolve(recipe: str | None, *given: Any, **more: Any) -> Any:
        return PRESETS.resolve(None, recipe_path(recipe) if recipe else None, *given, **more)

    chosen = options.resolve(resolve, (config,), settings, output, ("--syntactic",))
    if chosen is None:
        return
    if corpus is None and not options.resume:
        corpus = cli.stdin_or_sample("CORPUS", "trees", training="training on")
        dev = dev or sample_treebank("en", "valid")
    trained = options.run(
        train_syntactic,
        corpus,
        output,
        chosen,
        dev=dev,
        unlabelled=unlabelled,
        on_data=lambda data: note_data(data.summary),
    )
    scores = trained.scores
    report(
        trained,
        options.json,
        f"dev perplexity {scores['dev_perplexity']:.2f}, LAS {scores['dev_las']:.2f}, "
        f"UAS {scores['dev_uas']:.2f}",
        next=("eval-ppl TEXT -m {}", "parse FILE.conllu -m {}"),
    )


def _note_preparation(path: Path) -> None:
    """Say what was made of a raw text; nothing of a corpus that was prepared before."""
    from seqtool.cli.prepare import describe_draw
    from seqtool.core.reading import is_corpus
    from seqtool.text.prepared import PreparedCorpus

    if not is_corpus(path):
        return
    info = PreparedCorpus.open(path).info
    noun = {"word": "word", "char": "character", "byte": "byte"}.get(info["unit"], "piece")
    sizes = []
    for name, part in info["splits"].items():
        num = part["tokens"] - part["sentences"]  # without `</s>`
        share = f" ({part['unknown'] / max(1, num):.2%} unknown)" if part["unknown"] else ""
        sizes.append(f"{name} {counted(num, noun)}{share}")
    how = "split by file" if info["shares"] is None else describe_draw(info)
    vocabulary = counted(info["vocabulary_size"], "symbol")
    cli.note(f"prepared {path}: {', '.join(sizes)}; vocabulary of {vocabulary}; {how}")
