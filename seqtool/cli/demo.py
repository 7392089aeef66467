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
from seqtool.cli.usage import examples
from seqtool.core.errors import SeqtoolError
from seqtool.core.terminal import echo

LANGUAGES = {"en": "English", "ko": "Korean"}
LANES = 2  # commands that run side by side: one model of this size gains little from two cores
METRICS = ("UAS", "LAS", "CLAS")

Step = tuple[str, tuple[str, ...]]  # what a command does, and its words as a user types them


@dataclass(frozen=True)
class DemoModel:
    """A model of the demo."""

    name: str  # of its directory
    language: str  # of the sample
    kind: str  # as the table calls it
    title: str  # what comes
    command: str  # trains it; where it goes, and how many threads it takes, is added
    prompt: str = ""  # the option of `generate` that says what a language model goes on from

    @property
    def is_parser(self) -> bool:
        """Whether it parses, and is no language model."""
        return self.command.startswith("train-parser")


SMALL = "--hidden 160 --tied --dropout 0.2 --batch-size 16 --bptt 20 --epochs 5 --schedule cosine"
RHN = f"train-lm {{corpus}} --cell rhn --depth 3 {SMALL} --lr 0.005"
LSTM = f"train-lm {{corpus}} --cell lstm {SMALL} --lr 0.008"
NGRAM = "ngram train {corpus} --order 5"
PARSER = "train-parser {train} --dev {valid}"
OLD = "--prompt 'the old'"

# those that take long come first, so that none is left to run alone at the end
MODELS = (
    DemoModel("rhn", "en", "rhn", "Train a Recurrent Highway Network", RHN, OLD),
    DemoModel("lstm", "en", "lstm", "Train an LSTM", LSTM, OLD),
    DemoModel("parser-en", "en", "parser", "Train a parser", f"{PARSER} --epochs 1"),
    DemoModel("rhn-ko", "ko", "rhn", "Train a Recurrent Highway Network", RHN),
    DemoModel("parser-ko", "ko", "parser", "Train a parser", f"{PARSER} --epochs 2"),
    DemoModel("ngram", "en", "5-gram", "Count n-grams", NGRAM, OLD),
)
MIXED = ("rhn", "lstm")

# what is done first, with every model, and last
PREPARING = (
    "Prepare the {language} text: words to ids",
    "prepare {train} --valid {valid} --test {test} -o {corpus} --force",
)
TRAINING = "{command} -o {model} --force --threads {threads}"
STEPS = (
    ("{title} on the {language} text", TRAINING),
    ("Measure it on text that it has not seen", "eval-ppl {test} -m {model}"),
    ("Let it write", "generate --num 3 --seed 1 -m {model} {prompt}"),
)
PARSER_STEPS = (
    ("{title} on the {language} trees", TRAINING),
    ("Measure it on trees that it has not seen", "eval-parser {test} -m {model}"),
    ("Look at its trees", "parse {test} --format tree -m {model}"),
)
MIXING = (
    "Mix both networks, by weights that suit the validation text",
    "eval-ppl {test} -m {out}/rhn -m {out}/lstm --tune {valid}",
)


@examples(
    "seqtool demo",
    "seqtool demo -o runs/demo --json",
)
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
        preparing = [[_step(PREPARING, name, output)] for name in LANGUAGES]
        list(lanes.map(_run_steps, LANGUAGES, preparing))
        running = {
            model: lanes.submit(_run_steps, model.name, _steps(model, output, threads))
            for model in MODELS
        }
        results = {model: future.result() for model, future in running.items()}
        mixing = [_step(MIXING, "en", output)]
        (mixture,) = lanes.submit(_run_steps, "mixture", mixing).result()
    models = [_result(model, output, *found) for model, found in results.items()]
    parsers = [found for found in models if found["kind"] == "parser"]
    models = [found for found in models if found["kind"] != "parser"]
    mixed = [found for found in models if Path(found["model"]).name in MIXED]
    models.append(
        {
            "model": str(output / " + ".join(MIXED)),
            "language": "en",
            "kind": "mixture",
            "parameters": sum(found["parameters"] for found in mixed),
            "test": mixture,
            "tokens_per_second": None,
            "seconds": mixture["seconds"],
            "samples": [],
        }
    )
    seconds = time.perf_counter() - begin
    if as_json:
        emit({"models": models, "parsers": parsers, "seconds": seconds})
    else:
        _show_results(models, parsers, seconds)


def _step(template: tuple[str, str], language: str, output: Path, **names: str) -> Step:
    """Return a step with the sample's files as a user in this directory types them."""
    from seqtool.text.datasets import sample_text, sample_treebank

    title, command = template
    has_trees = command.startswith(("train-parser", "eval-parser", "parse"))
    find = sample_treebank if has_trees else sample_text
    names |= {
        split: _at_hand(find(language, split), output) for split in ("train", "valid", "test")
    }
    names |= {"out": str(output), "corpus": str(output / f"corpus-{language}")}
    words = tuple(word.format(**names) for word in shlex.split(command))
    return title.format(language=LANGUAGES[language], **names), words


def _at_hand(path: Path, output: Path) -> str:
    """Return a file of the sample by a path that can be typed.

    Where the sample lies in an installation, far from here, a copy in the demo's directory is used.
    """
    near = os.path.relpath(path)
    if not near.startswith(os.pardir):
        return near
    copy = output / "sample" / path.parent.name / path.name
    content = path.read_bytes()
    if not copy.is_file() or copy.read_bytes() != content:
        from seqtool.core.storage import atomic_file

        copy.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(copy) as file:
            file.write(content)
    return str(copy)


def _steps(model: DemoModel, output: Path, threads: int) -> list[Step]:
    """Return the commands that train a model, measure it and use it."""
    names = {"title": model.title, "model": str(output / model.name), "threads": str(threads)}
    own = {"{command}": model.command, "{prompt}": model.prompt}
    steps = []
    for title, command in PARSER_STEPS if model.is_parser else STEPS:
        for name, words in own.items():
            command = command.replace(name, words)
        steps.append(_step((title, command), model.language, output, **names))
    return steps


def _run_steps(name: str, steps: list[Step]) -> list[Any]:
    """Run commands one after another, and return what each prints: an object, or a text.

    The name stands before each line of stderr, as another process writes there too.

    Raises:
        SeqtoolError: one of them failed; it has said why.
    """
    from seqtool.cli.app import main

    results: list[Any] = []
    with redirect_stderr(_NamedLines(name, sys.stderr)):
        for title, args in steps:
            sys.argv = ["seqtool", *args]  # what a model records of its command
            note(f"\n{title}\n$ {shlex.join(sys.argv)}")
            is_text = args[0] == "parse"
            with redirect_stdout(io.StringIO()) as printed:
                code = main([*args, *([] if is_text else ["--json"])])
            if code:
                what = f"the command failed: {shlex.join(sys.argv)}"
                raise SeqtoolError(what, hint="mend what it said above, and run the demo again")
            text = printed.getvalue()
            results.append(text if is_text else json.loads(text))
            note(SUMMARIES[args[0]](results[-1]))
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
    best = found["true_perplexity"] or float("nan")
    perplexities = f"perplexity {found['perplexity']:.2f}; of the grammar itself {best:.2f}"
    return f"{perplexities}, and no model can be expected below that"


# what is said of the output of a command
SUMMARIES: dict[str, Callable[[Any], str]] = {
    "prepare": _summary_of_corpus,
    "ngram": _summary_of_training,
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
    """Return what --json prints of a model."""
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
    def row(found: dict[str, Any], kind: str, *figures: str) -> list[str]:
        what = [found["model"], LANGUAGES[found["language"]], found[kind]]
        return [*what, f"{found['parameters']:,}", *figures, f"{found['seconds']:.1f}"]

    columns = ["model", "text", "kind", "parameters", "test perplexity", "of the grammar"]
    rows = [
        row(
            found,
            "kind",
            f"{found['test']['perplexity']:.2f}",
            f"{found['test']['true_perplexity'] or float('nan'):.2f}",
            "" if found["tokens_per_second"] is None else f"{found['tokens_per_second']:,.0f}",
        )
        for found in models
    ]
    echo(err=True)
    title = f"What was trained, and how well ({seconds:.0f} seconds in all)"
    show_table(title, [*columns, "tokens/s", "seconds"], rows)
    columns = ["parser", "trees", "system", "parameters", *(f"test {m}" for m in METRICS)]
    rows = [
        row(found, "system", *(f"{found['test'][metric]['f1']:.2f}" for metric in METRICS))
        for found in parsers
    ]
    show_table("", [*columns, "seconds"], rows)
    best = Path(min(models[:-1], key=lambda found: float(found["test"]["perplexity"]))["model"])
    folder = shlex.quote(str(best.parent))
    note(
        "\nNow with your own text:\n"
        "$ seqtool ngram train my.txt\n"
        "$ seqtool train-lm my.txt --cell rhn\n"
        '$ seqtool generate --prompt "..."\n'
        "$ seqtool train-parser my.conllu\n"
        f"or look at a model of the demo: seqtool inspect {shlex.quote(str(best))}\n"
        f"and at what all of them do, on one page: seqtool analyse report {folder}"
    )
