"""`seqtool demo`: the whole main job on the shipped sample, command by command."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer

from seqtool.cli.options import JsonOption, emit, note, show_table

LANGUAGES = {"en": "English", "ko": "Korean"}
LANES = 2  # commands that run side by side: one model of this size gains little from two cores
METRICS = ("UAS", "LAS", "CLAS")


@dataclass(frozen=True)
class DemoModel:
    """A model of the demo.

    Attributes:
        name: of its directory.
        language: of the sample.
        kind: as the table calls it.
        title: what comes.
        command: trains it; where it goes, and how many threads it takes, is added.
        prompt: for a language model to go on from.
    """

    name: str
    language: str
    kind: str
    title: str
    command: str
    prompt: str = ""

    @property
    def is_parser(self) -> bool:
        """Whether it parses, and is no language model."""
        return self.command.startswith("train-parser")


SMALL = "--hidden 160 --tied --dropout 0.2 --batch-size 16 --bptt 20 --epochs 5 --schedule cosine"
RHN = f"train-lm {{corpus}} --cell rhn --depth 3 {SMALL} --lr 0.005"
LSTM = f"train-lm {{corpus}} --cell lstm {SMALL} --lr 0.008"
PARSER = "train-parser {train} --dev {valid}"

# those that take long come first, so that none is left to run alone at the end
MODELS = (
    DemoModel("rhn", "en", "rhn", "Train a Recurrent Highway Network", RHN, "the old"),
    DemoModel("lstm", "en", "lstm", "Train an LSTM", LSTM, "the old"),
    DemoModel("parser-en", "en", "parser", "Train a parser", f"{PARSER} --epochs 1"),
    DemoModel("rhn-ko", "ko", "rhn", "Train a Recurrent Highway Network", RHN),
    DemoModel("parser-ko", "ko", "parser", "Train a parser", f"{PARSER} --epochs 2"),
    DemoModel(
        "ngram", "en", "5-gram", "Count n-grams", "ngram train {corpus} --order 5", "the old"
    ),
)
MIXED = ("rhn", "lstm")
MIXTURE = "eval-ppl {test} -m {out}/rhn -m {out}/lstm --tune {valid}"


@dataclass(frozen=True)
class Step:
    """A command of the demo.

    Attributes:
        title: says what it does.
        args: as a user types them.
        as_json: run it with --json, for its figures.
    """

    title: str
    args: tuple[str, ...]
    as_json: bool = True

    @property
    def command(self) -> str:
        """Return the name of the command."""
        return " ".join(self.args[: 2 if self.args[0] == "ngram" else 1])


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Directory; an earlier demo in it is replaced."
        ),
    ] = Path("runs/demo"),
    threads: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="CPU threads of a command; two commands run at a time."
        ),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Train, measure and use language models and parsers on the shipped sample, in three minutes.

    Every step is a command that you can type, and is shown before it runs. The sample was written
    by a grammar, so the best perplexity that any model can reach is known, and stands beside the
    model's.
    """
    begin = time.perf_counter()
    note("The shipped sample is text that a grammar wrote; see data/README.md.")
    # processes of their own, begun anew: forking one that has run PyTorch's threads may hang it
    with ProcessPoolExecutor(min(LANES, os.cpu_count() or 1), get_context("spawn")) as lanes:
        list(lanes.map(_run_steps, LANGUAGES, [[_preparing(name, output)] for name in LANGUAGES]))
        steps = {model.name: _steps(model, output, threads) for model in MODELS}
        running = {name: lanes.submit(_run_steps, name, steps[name]) for name in steps}
        results = {name: future.result() for name, future in running.items()}
        mixing = [
            Step(
                "Mix both networks, by weights that suit the validation text",
                _words(MIXTURE, "en", output),
            )
        ]
        (mixture,) = lanes.submit(_run_steps, "mixture", mixing).result()
    models = [_result(model, output, *results[model.name]) for model in MODELS]
    models.append(
        {
            "model": str(output / " + ".join(MIXED)),
            "language": "en",
            "kind": "mixture",
            "parameters": sum(found["parameters"] for found in models if _name(found) in MIXED),
            "test": mixture,
            "tokens_per_second": None,
            "seconds": mixture["seconds"],
            "samples": [],
        }
    )
    parsers = [found for found in models if found["kind"] == "parser"]
    models = [found for found in models if found["kind"] != "parser"]
    seconds = time.perf_counter() - begin
    if as_json:
        emit({"models": models, "parsers": parsers, "seconds": seconds})
    else:
        _show_results(models, parsers, seconds)


def _name(result: dict[str, Any]) -> str:
    return Path(result["model"]).name


def _words(command: str, language: str, output: Path) -> tuple[str, ...]:
    """Return a command's words, with the sample's files as a user in this directory types them."""
    from seqtool.text.datasets import sample_text, sample_treebank

    find = (
        sample_treebank
        if command.startswith(("train-parser", "eval-parser", "parse"))
        else (sample_text)
    )
    names = {split: _short(find(language, split)) for split in ("train", "valid", "test")}
    names |= {"out": str(output), "corpus": str(output / f"corpus-{language}")}
    return tuple(word.format(**names) for word in shlex.split(command))


def _short(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _preparing(language: str, output: Path) -> Step:
    command = "prepare {train} --valid {valid} --test {test} -o {corpus} --force"
    title = f"Prepare the {LANGUAGES[language]} text: words to ids"
    return Step(title, _words(command, language, output))


def _steps(model: DemoModel, output: Path, threads: int) -> list[Step]:
    """Return the commands that train a model, measure it and use it."""

    def step(title: str, command: str, *more: str, as_json: bool = True) -> Step:
        return Step(title, (*_words(command, model.language, output), *more), as_json)

    path, language = str(output / model.name), LANGUAGES[model.language]
    place = ("-o", path, "--force", "--threads", str(threads))
    if model.is_parser:
        return [
            step(f"{model.title} on the {language} trees", model.command, *place),
            step("Measure it on trees that it has not seen", "eval-parser {test}", "-m", path),
            step("Look at its trees", "parse {test} --format tree", "-m", path, as_json=False),
        ]
    prompt = ("--prompt", model.prompt) if model.prompt else ()
    return [
        step(f"{model.title} on the {language} text", model.command, *place),
        step("Measure it on text that it has not seen", "eval-ppl {test}", "-m", path),
        step("Let it write", "generate --num 3 --seed 1", "-m", path, *prompt),
    ]


def _run_steps(name: str, steps: list[Step]) -> list[Any]:
    """Run commands one after another, and return what each prints: an object, or a text.

    Args:
        name: stands before each line of stderr, as another process writes there too.
        steps: the commands.

    Raises:
        SeqtoolError: one of them failed; it has said why.
    """
    from seqtool.cli.app import main
    from seqtool.core.errors import SeqtoolError

    results = []
    with redirect_stderr(_NamedLines(name, sys.stderr)):
        for step in steps:
            note(f"\n{step.title}\n$ {shlex.join(['seqtool', *step.args])}")
            sys.argv = ["seqtool", *step.args]  # what a model records of its command
            with redirect_stdout(io.StringIO()) as printed:
                code = main([*step.args, *(["--json"] if step.as_json else [])])
            if code:
                raise SeqtoolError(f"the command failed: {shlex.join(sys.argv)}")
            text = printed.getvalue()
            results.append(json.loads(text) if step.as_json else text)
            note(SUMMARIES[step.command](results[-1]))
    return results


class _NamedLines(io.TextIOBase):
    """Lines with a name before each, every one written whole."""

    def __init__(self, name: str, stream: Any) -> None:
        self._name, self._stream, self._rest = name, stream, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        named = (f"{self._name:<9} | {line}".rstrip() for line in lines)
        self._stream.write("".join(f"{line}\n" for line in named))
        self._stream.flush()
        return len(text)


def _summary_of_corpus(found: dict[str, Any]) -> str:
    sizes = ", ".join(
        f"{name} {counts['sentences']:,} sentences and {counts['tokens']:,} tokens"
        for name, counts in found["splits"].items()
    )
    return f"{found['vocabulary_size']:,} symbols; {sizes}"


def _summary_of_training(found: dict[str, Any]) -> str:
    scores = ", ".join(
        f"{name.replace('_', ' ')} {found[name]:.2f}"
        for name in ("valid_perplexity", "dev_uas", "dev_las")
        if name in found
    )
    return f"{scores}; {found['seconds']:.1f} s"


def _summary_of_perplexity(found: dict[str, Any]) -> str:
    return (
        f"perplexity {found['perplexity']:.2f}; of the grammar itself "
        f"{found['true_perplexity'] or float('nan'):.2f}, and no model can be expected below that"
    )


# what is said of the output of a command
SUMMARIES: dict[str, Callable[[Any], str]] = {
    "prepare": _summary_of_corpus,
    "ngram train": _summary_of_training,
    "train-lm": _summary_of_training,
    "train-parser": _summary_of_training,
    "eval-ppl": _summary_of_perplexity,
    "eval-parser": lambda found: ", ".join(f"{m} {found[m]['f1']:.2f}" for m in METRICS),
    "generate": lambda found: "\n".join(f"  {sample['text']}" for sample in found["samples"]),
    "parse": lambda text: str(text).partition("\n\n")[0],  # the first tree
}


def _result(
    model: DemoModel, output: Path, trained: dict[str, Any], test: Any, used: Any
) -> dict[str, Any]:
    """Return what `seqtool demo --json` prints of a model."""
    from seqtool.core import checkpoint

    path = output / model.name
    result = {
        "model": str(path),
        "language": model.language,
        "kind": model.kind,
        "parameters": checkpoint.read_header(path).num_parameters,
        "test": test,
        "seconds": trained["seconds"],
    }
    if model.is_parser:
        return {**result, "system": trained["system"]}
    speed = trained.get("tokens_per_second")
    return {
        **result,
        "tokens_per_second": speed or trained["tokens"] / trained["seconds"],
        "valid_perplexity": trained["valid_perplexity"],
        "samples": [sample["text"] for sample in used["samples"]],
    }


def _show_results(
    models: list[dict[str, Any]], parsers: list[dict[str, Any]], seconds: float
) -> None:
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
            found["model"],
            LANGUAGES[found["language"]],
            found["kind"],
            f"{found['parameters']:,}",
            f"{found['test']['perplexity']:.2f}",
            f"{found['test']['true_perplexity'] or float('nan'):.2f}",
            "" if found["tokens_per_second"] is None else f"{found['tokens_per_second']:,.0f}",
            f"{found['seconds']:.1f}",
        ]
        for found in models
    ]
    typer.echo(err=True)
    show_table(f"What was trained, and how well ({seconds:.0f} seconds in all)", columns, rows)
    columns = ["parser", "trees", "system", "parameters", *(f"test {m}" for m in METRICS)]
    rows = [
        [
            found["model"],
            LANGUAGES[found["language"]],
            found["system"],
            f"{found['parameters']:,}",
            *(f"{found['test'][metric]['f1']:.2f}" for metric in METRICS),
            f"{found['seconds']:.1f}",
        ]
        for found in parsers
    ]
    show_table("", [*columns, "seconds"], rows)
    best = min(models[:-1], key=lambda found: float(found["test"]["perplexity"]))["model"]
    note(
        "\nNow with your own text:\n"
        "$ seqtool ngram train my.txt\n"
        "$ seqtool train-lm my.txt --cell rhn\n"
        '$ seqtool generate --prompt "..."\n'
        "$ seqtool train-parser my.conllu\n"
        f"or look at a model of the demo: seqtool inspect {best}"
    )
