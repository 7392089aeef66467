"""`seqtool demo`: the whole main job on the shipped sample, command by command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from seqtool.cli.options import JsonOption, emit, note, option, show_table
from seqtool.cli.usage import examples
from seqtool.core import checkpoint
from seqtool.core.errors import SeqtoolError
from seqtool.core.terminal import echo, short_path

LANGUAGES = {"en": "English", "ko": "Korean"}
LANES = 2  # commands that run side by side: one model of this size gains little from two cores
METRICS = ("UAS", "LAS", "CLAS")


class DemoModel(NamedTuple):
    """A model of the demo: its directory, its text, what it is called, and what trains it."""

    name: str
    language: str
    kind: str
    title: str
    command: str
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
MODELS = [
    DemoModel("rhn", "en", "rhn", "Train a Recurrent Highway Network", RHN, OLD),
    DemoModel("lstm", "en", "lstm", "Train an LSTM", LSTM, OLD),
    DemoModel("parser-en", "en", "parser", "Train a parser", f"{PARSER} --epochs 1"),
    DemoModel("rhn-ko", "ko", "rhn", "Train a Recurrent Highway Network", RHN),
    DemoModel("parser-ko", "ko", "parser", "Train a parser", f"{PARSER} --epochs 2"),
    DemoModel("ngram", "en", "5-gram", "Count n-grams", NGRAM, OLD),
]
MIXED = ("rhn", "lstm")
PREPARE = "prepare {train} --valid {valid} --test {test} -o {corpus} --force"
TRAIN = " -o {model} --force --threads {threads}"
MIX = "eval-ppl {test} -m {out}/rhn -m {out}/lstm --tune {valid}"


@examples(
    "seqtool demo",
    "seqtool demo -o runs/demo --json",
)
def demo(
    output: Path = option(
        Path("runs/demo"), "Directory; an earlier demo in it is replaced.", "DIR", "-o"
    ),
    threads: int = option(1, "CPU threads of a command; two commands run at a time.", "N", min=1),
    as_json: JsonOption = False,
) -> None:
    """Train, measure and use language models and parsers on the shipped sample, in three minutes.

    Every step is a command that you can type, and is shown before it runs. The sample was written
    by a grammar, so the best perplexity that any model can reach is known, and stands beside the
    model's.
    """
    begin = time.perf_counter()
    note("The shipped sample is text that a grammar wrote; see data/README.md.")

    def prepare(language: str) -> None:
        title = f"Prepare the {LANGUAGES[language]} text: words to ids"
        _run(language, language, output, title, PREPARE)

    with ThreadPoolExecutor(min(LANES, os.cpu_count() or 1)) as lanes:
        list(lanes.map(prepare, LANGUAGES))
        results = list(lanes.map(lambda model: _use(model, output, threads), MODELS))
    title = "Mix both networks, by weights that suit the validation text"
    mixture = _run("mixture", "en", output, title, MIX)
    parsers = [found for found in results if found["kind"] == "parser"]
    models = [found for found in results if found["kind"] != "parser"]
    sizes = [found["parameters"] for found in models if Path(found["model"]).name in MIXED]
    mixed: dict[str, Any] = {
        "model": str(output / " + ".join(MIXED)),
        "language": "en",
        "kind": "mixture",
    }
    mixed |= {"parameters": sum(sizes), "test": mixture, "tokens_per_second": None}
    models.append({**mixed, "seconds": mixture["seconds"], "samples": []})
    seconds = time.perf_counter() - begin
    if as_json:
        emit({"models": models, "parsers": parsers, "seconds": seconds})
    else:
        _show_results(models, parsers, seconds)


def _use(model: DemoModel, output: Path, threads: int) -> dict[str, Any]:
    """Train a model, measure it and use it; return what --json prints of it."""

    def run(title: str, command: str) -> Any:
        names = {"model": str(output / model.name), "threads": str(threads)}
        return _run(model.name, model.language, output, title, command, **names)

    what = f"{LANGUAGES[model.language]} {'trees' if model.is_parser else 'text'}"
    trained = run(f"{model.title} on the {what}", model.command + TRAIN)
    result = {
        "model": str(output / model.name),
        "language": model.language,
        "kind": model.kind,
        "parameters": checkpoint.read_header(output / model.name).num_parameters,
        "seconds": trained["seconds"],
    }
    if model.is_parser:
        test = run("Measure it on trees that it has not seen", "eval-parser {test} -m {model}")
        run("Look at its trees", "parse {test} --format tree -m {model}")
        return {**result, "test": test, "system": trained["system"]}
    test = run("Measure it on text that it has not seen", "eval-ppl {test} -m {model}")
    write = f"generate --num 3 --seed 1 -m {{model}} {model.prompt}"
    samples = run("Let it write", write)["samples"]
    speed = trained.get("tokens_per_second") or trained["tokens"] / trained["seconds"]
    return {
        **result,
        "test": test,
        "tokens_per_second": speed,
        "valid_perplexity": trained["valid_perplexity"],
        "samples": [sample["text"] for sample in samples],
    }


def _run(name: str, language: str, output: Path, title: str, command: str, **names: str) -> Any:
    """Show and run a command in a process of its own, and return what it prints: JSON, or a text.

    The name stands before each line, as another command writes there too.

    Raises:
        SeqtoolError: it failed.
    """
    from seqtool.text.datasets import sample_text, sample_treebank

    def say(text: str) -> None:
        note("\n".join(f"{name:<9} | {line}".rstrip() for line in text.split("\n")))

    has_trees = command.startswith(("train-parser", "eval-parser", "parse"))
    find = sample_treebank if has_trees else sample_text
    files = {split: str(short_path(find(language, split))) for split in ("train", "valid", "test")}
    names |= {"out": str(output), "corpus": str(output / f"corpus-{language}"), **files}
    words = [word.format(**names) for word in shlex.split(command)]
    say(f"\n{title}\n$ seqtool {shlex.join(words)}")
    is_text = words[0] == "parse"
    own = [sys.executable, "-m", "seqtool", *words, *([] if is_text else ["--json"])]
    done = subprocess.run(own, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)
    if done.stderr:
        say(done.stderr.rstrip())
    if done.returncode:
        what = f"the command failed: seqtool {shlex.join(words)}"
        raise SeqtoolError(what, hint="mend what it said above, and run the demo again")
    found = done.stdout if is_text else json.loads(done.stdout)
    say(SUMMARIES[words[0]](found))
    return found


def _training_scores(found: dict[str, Any]) -> str:
    names = ("valid_perplexity", "dev_uas", "dev_las")
    scores = (f"{name.replace('_', ' ')} {found[name]:.2f}" for name in names if name in found)
    return f"{', '.join(scores)}; {found['seconds']:.1f} s"


# what is said of the output of a command
SUMMARIES: dict[str, Callable[[Any], str]] = {
    "prepare": lambda found: (
        f"{found['vocabulary_size']:,} symbols; {found['splits']['train']['tokens']:,} tokens"
    ),
    "ngram": _training_scores,
    "train-lm": _training_scores,
    "train-parser": _training_scores,
    "eval-ppl": lambda found: (
        f"perplexity {found['perplexity']:.2f}; of the grammar itself "
        f"{found['true_perplexity']:.2f}, and no model can be expected below that"
    ),
    "eval-parser": lambda found: ", ".join(f"{m} {found[m]['f1']:.2f}" for m in METRICS),
    "generate": lambda found: "\n".join(f"  {sample['text']}" for sample in found["samples"]),
    "parse": lambda text: str(text).partition("\n\n")[0],  # the first tree
}


def _show_results(
    models: list[dict[str, Any]], parsers: list[dict[str, Any]], seconds: float
) -> None:
    def row(found: dict[str, Any], *figures: float | None) -> list[str]:
        kind = found.get("system", found["kind"])
        shown = ["" if figure is None else f"{figure:,.2f}" for figure in figures]
        what = [found["model"], LANGUAGES[found["language"]], kind, f"{found['parameters']:,}"]
        return [*what, *shown, f"{found['seconds']:.1f}"]

    scores = ("perplexity", "true_perplexity")
    rows = [
        row(found, *map(found["test"].get, scores), found["tokens_per_second"]) for found in models
    ]
    echo(err=True)
    columns = ["model", "text", "kind", "parameters", "test perplexity", "of the grammar"]
    title = f"What was trained, and how well ({seconds:.0f} seconds in all)"
    show_table(title, [*columns, "tokens/s", "seconds"], rows)
    rows = [row(found, *(found["test"][m]["f1"] for m in METRICS)) for found in parsers]
    columns = ["parser", "trees", "system", "parameters", *(f"test {m}" for m in METRICS)]
    show_table("", [*columns, "seconds"], rows)
    best = Path(min(models[:-1], key=lambda found: float(found["test"]["perplexity"]))["model"])
    note(
        "\nNow with your own text:\n"
        "$ seqtool ngram train my.txt\n"
        "$ seqtool train-lm my.txt --cell rhn\n"
        '$ seqtool generate --prompt "..."\n'
        "$ seqtool train-parser my.conllu\n"
        f"or look at a model of the demo: seqtool inspect {shlex.quote(str(best))}\n"
        "and at what all of them do, on one page: seqtool analyse report "
        f"{shlex.quote(str(best.parent))}"
    )
