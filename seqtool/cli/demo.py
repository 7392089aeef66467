"""`seqtool demo`: the whole main job on the shipped sample, each step with its command."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.demo_parser import METRICS, DemoParser, run_parser
from seqtool.cli.options import JsonOption, emit, note, show_table

if TYPE_CHECKING:
    from seqtool.lm.ngram.train import NgramTraining
    from seqtool.lm.protocol import LMEvaluation
    from seqtool.text.prepared import PreparedCorpus
    from seqtool.text.sample import Split


@dataclass(frozen=True)
class DemoModel:
    """A model of the demo: its directory's name, its language, its settings, a prompt for it.

    One with an order is an n-gram model; the others are networks.
    """

    name: str
    language: str
    settings: Mapping[str, Any]
    prompt: str = ""

    @property
    def is_ngram(self) -> bool:
        """Whether it is an n-gram model."""
        return "order" in self.settings

    @property
    def kind(self) -> str:
        """Its cell, or its order."""
        return f"{self.settings['order']}-gram" if self.is_ngram else self.settings["model.cell"]


KINDS = {"rhn": "Recurrent Highway Network", "lstm": "LSTM"}
LANGUAGES = {"en": "English", "ko": "Korean"}
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

SMALL = {
    "model.hidden_size": 160,
    "model.tied": True,
    "model.dropout_input": 0.1,
    "model.dropout_output": 0.3,
    "data.batch_size": 16,
    "data.bptt": 20,
    "training.epochs": 8,
    "training.schedule": "cosine",
}
RHN = {"model.cell": "rhn", "model.depth": 3, **SMALL, "training.learning_rate": 0.005}
LSTM = {"model.cell": "lstm", **SMALL, "training.learning_rate": 0.008}

# the networks take up to a minute each on one core, and gain little from a second one
MODELS = (
    DemoModel("ngram", "en", {"order": 5}, prompt="the old"),
    DemoModel("rhn", "en", RHN, prompt="the old"),
    DemoModel("lstm", "en", LSTM, prompt="the old"),
    DemoModel("rhn-ko", "ko", RHN),
)


@dataclass(frozen=True)
class Trained:
    """What training one model of the demo gave.

    Attributes:
        num_parameters: trained numbers; of an n-gram model its probabilities and backoffs.
        tokens_per_second: of the training text.
        seconds: wall time.
        scores: what was measured on the valid split.
    """

    num_parameters: int
    tokens_per_second: float
    seconds: float
    scores: Mapping[str, float]


@dataclass(frozen=True)
class DemoResult:
    """What became of one model of the demo."""

    model: DemoModel
    path: Path
    trained: Trained
    evaluation: LMEvaluation
    samples: list[str]


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Directory; an earlier demo in it is replaced."
        ),
    ] = Path("runs/demo"),
    threads: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="CPU threads; these models gain little from two."),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Train, measure and use language models and parsers on the shipped sample, in three minutes.

    Every step is shown with the command that does the same. The sample was written by a grammar, so
    the best perplexity that any model can reach is known, and stands beside the model's.
    """
    begin = time.perf_counter()
    note("The shipped sample is text that a grammar wrote; see data/README.md.")
    corpora = {language: _prepare(language, output) for language in LANGUAGES}
    results = [_run(model, corpora[model.language], output, threads) for model in MODELS]
    parsers = [
        run_parser(language, name, output / f"parser-{language}", threads, _step, _short)
        for language, name in LANGUAGES.items()
    ]
    seconds = time.perf_counter() - begin
    if as_json:
        models = [_to_json(result) for result in results]
        emit(
            {
                "models": models,
                "parsers": [parser.to_json() for parser in parsers],
                "seconds": seconds,
            }
        )
    else:
        _show_results(results, parsers, seconds)


def _prepare(language: str, output: Path) -> PreparedCorpus:
    from seqtool.text.prepared import prepare
    from seqtool.text.sample import sample_text

    train, valid, test = (sample_text(language, split) for split in SPLITS)
    directory = output / f"corpus-{language}"
    splits = ["--valid", _short(valid), "--test", _short(test)]
    _step(
        f"Prepare the {LANGUAGES[language]} text: words to ids",
        ["prepare", _short(train), *splits, "-o", str(directory), "--force"],
    )
    corpus = prepare([train], directory, valid=valid, test=test, force=True)
    sizes = ", ".join(
        f"{name} {counts['sentences']:,} sentences and {counts['tokens']:,} tokens"
        for name, counts in corpus.info["splits"].items()
    )
    note(f"{len(corpus.vocabulary):,} symbols; {sizes}")
    return corpus


def _run(model: DemoModel, corpus: PreparedCorpus, output: Path, threads: int | None) -> DemoResult:
    """Train, evaluate and sample from one model."""
    from seqtool.core import checkpoint
    from seqtool.lm.protocol import evaluate_lm
    from seqtool.lm.sampling import generate_samples
    from seqtool.text.sample import sample_text

    path = output / model.name
    train = _train_ngram if model.is_ngram else _train_network
    trained = train(model, corpus, path, threads)
    text = sample_text(model.language, "test")
    _step("Measure it on text that it has not seen", ["eval-ppl", _short(text), "-m", str(path)])
    opened = checkpoint.load(path)
    evaluation = evaluate_lm(opened, text)
    note(
        f"perplexity {evaluation.perplexity:.2f}; of the grammar itself "
        f"{evaluation.true_perplexity or float('nan'):.2f}, and no model can be expected below that"
    )
    prompt = ["--prompt", model.prompt] if model.prompt else []
    _step(
        "Let it write",
        ["generate", "-m", str(path), *prompt, "--num", "3", "--seed", "1"],
    )
    samples = [sample.text for sample in generate_samples(opened, model.prompt, num=3, seed=1)]
    for text_written in samples:
        note(f"  {text_written}")
    return DemoResult(model, path, trained, evaluation, samples)


def _train_ngram(
    model: DemoModel, corpus: PreparedCorpus, path: Path, threads: int | None
) -> Trained:
    from seqtool.core import checkpoint
    from seqtool.lm.ngram.config import NgramConfig
    from seqtool.lm.ngram.train import train_ngram

    command = ["ngram", "train", str(corpus.path), *_options(model), "-o", str(path), "--force"]
    command += [] if threads is None else ["--threads", str(threads)]
    _step(f"Count the {LANGUAGES[model.language]} text: a {model.kind} model", command)
    made = train_ngram(
        corpus.path,
        path,
        NgramConfig(**model.settings),
        force=True,
        threads=threads,
        command=shlex.join(["seqtool", *command]),
    )
    note(_describe(made))
    speed = made.num_tokens / made.total_seconds
    num_parameters = checkpoint.read_header(path).num_parameters
    return Trained(num_parameters, speed, made.total_seconds, made.scores)


def _describe(made: NgramTraining) -> str:
    """Return what an n-gram model holds, in one line."""
    sizes = ", ".join(f"{row['ngrams']:,} {row['order']}-grams" for row in made.statistics)
    return f"{sizes}; valid perplexity {made.scores['valid_perplexity']:.2f}"


def _train_network(
    model: DemoModel, corpus: PreparedCorpus, path: Path, threads: int | None
) -> Trained:
    from seqtool.core.progress import Display
    from seqtool.lm.neural.recipes import resolve
    from seqtool.lm.neural.train import train_lm

    command = ["train-lm", str(corpus.path), *_options(model), "-o", str(path), "--force"]
    command += [] if threads is None else ["--threads", str(threads)]
    language = LANGUAGES[model.language]
    _step(f"Train a language model of the {language} text: {KINDS[model.kind]}", command)
    with Display() as display:
        made = train_lm(
            corpus,
            path,
            resolve(None, model.settings, []),
            force=True,
            threads=threads,
            on_event=display.show,
            command=shlex.join(["seqtool", *command]),
        )
    speed = made.scores.get("tokens_per_second", 0.0)
    return Trained(made.num_parameters, speed, made.seconds, made.scores)


def _options(model: DemoModel) -> list[str]:
    """Return settings as the command takes them: by an option where there is one, or by --set."""
    from seqtool.cli.train_lm import SETTINGS

    names = {setting: f"--{option.replace('_', '-')}" for option, setting in SETTINGS.items()}
    names["order"] = "--order"
    words = []
    for setting, value in model.settings.items():
        if setting not in names:
            words += ["--set", f"{setting}={value}"]
        else:
            words += [names[setting]] if value is True else [names[setting], str(value)]
    return words


def _step(title: str, command: list[str]) -> None:
    """Say what comes, and the command that does it."""
    typer.echo(err=True)
    typer.secho(title, bold=True, err=True)
    note(f"$ {shlex.join(['seqtool', *command])}")


def _short(path: Path) -> str:
    """Return a path as a user in this directory would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _to_json(result: DemoResult) -> dict[str, Any]:
    return {
        "model": str(result.path),
        "language": result.model.language,
        "kind": result.model.kind,
        "parameters": result.trained.num_parameters,
        "test": result.evaluation.to_json(),
        "tokens_per_second": result.trained.tokens_per_second,
        **result.trained.scores,
        "seconds": result.trained.seconds,
        "samples": result.samples,
    }


def _show_results(results: list[DemoResult], parsers: list[DemoParser], seconds: float) -> None:
    columns = [
        "model",
        "text",
        "kind",
        "parameters",
        "test perplexity",
        "of the grammar",
        "tokens/s",
        "seconds",
    ]
    rows = [
        [
            str(result.path),
            LANGUAGES[result.model.language],
            result.model.kind,
            f"{result.trained.num_parameters:,}",
            f"{result.evaluation.perplexity:.2f}",
            f"{result.evaluation.true_perplexity or float('nan'):.2f}",
            f"{result.trained.tokens_per_second:,.0f}",
            f"{result.trained.seconds:.1f}",
        ]
        for result in results
    ]
    typer.echo(err=True)
    show_table(f"What was trained, and how well ({seconds:.0f} seconds in all)", columns, rows)
    columns = [
        "parser",
        "trees",
        "system",
        "parameters",
        *(f"test {m}" for m in METRICS),
        "seconds",
    ]
    rows = [[str(p.path), LANGUAGES[p.language], *p.cells()] for p in parsers]
    show_table("", columns, rows)
    best = min(results, key=lambda result: result.evaluation.perplexity).path
    note(
        "\nNow with your own text:\n"
        "$ seqtool ngram train my.txt\n"
        "$ seqtool train-lm my.txt --cell rhn\n"
        '$ seqtool generate --prompt "..."\n'
        "$ seqtool train-parser my.conllu\n"
        f"or look at a model of the demo: seqtool inspect {best}"
    )
