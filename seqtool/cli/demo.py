"""`seqtool demo`: the whole main job on the shipped sample, command by command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
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
    command: str
    prompt: str = ""  # the option of `generate` that says what a language model goes on from

    @property
    def is_parser(self) -> bool:
        """Whether it parses, and is no language model."""
        return self.command.startswith("train-parser")


SMALL = "--hidden 160 --tied --dropout 0.2 --batch-size 16 --bptt 20 --epochs 5 --schedule cosine"
RHN = f"train-lm {{corpus}} --cell rhn --depth 3 {SMALL} --lr 0.005"
LSTM = f"train-lm {{corpus}} --cell lstm {SMALL} --lr 0.008"
PARSER = "train-parser {train} --dev {valid}"
OLD = "--prompt 'the old'"

# those that take long come first, so that none is left to run alone at the end
MODELS = [
    DemoModel("rhn", "en", "rhn", RHN, OLD),
    DemoModel("lstm", "en", "lstm", LSTM, OLD),
    DemoModel("parser-en", "en", "parser", f"{PARSER} --epochs 1"),
    DemoModel("rhn-ko", "ko", "rhn", RHN),
    DemoModel("parser-ko", "ko", "parser", f"{PARSER} --epochs 2"),
    DemoModel("ngram", "en", "5-gram", "ngram train {corpus} --order 5", OLD),
]
MIXED = ("rhn", "lstm")
PREPARE = "prepare {train} --valid {valid} --test {test} -o {corpus} --force"
MIX = "eval-ppl {test} -m {out}/rhn -m {out}/lstm --tune {valid}"


# what a command is run for
TITLES = {
    "prepare": "Turn words into ids",
    "ngram": "Count n-grams",
    "train-lm": "Train a network",
    "train-parser": "Train a parser",
    "eval-ppl": "Measure it on text that it has not seen",
    "eval-parser": "Measure it on trees that it has not seen",
    "generate": "Let it write",
    "parse": "Look at its trees",
}


@examples("seqtool demo", "seqtool demo -o runs/demo --json")
def demo(
    output: Path = option(
        Path("runs/demo"), "Directory; an earlier demo in it is replaced.", "DIR", "-o"
    ),
    threads: int = option(1, "Threads of a command; two commands run at a time.", "N", min=1),
    as_json: JsonOption = False,
) -> None:
    """Train, measure and use language models and parsers on the shipped sample, in three minutes.

    Every step is a command that you can type, and is shown before it runs. The sample was written
    by a grammar, so the best perplexity that any model can reach is known, and stands beside the
    model's.
    """
    begin = time.perf_counter()
    note("The shipped sample is text that a grammar wrote; see data/README.md.")
    with ThreadPoolExecutor(min(LANES, os.cpu_count() or 1)) as lanes:
        list(lanes.map(lambda language: _run(language, language, output, PREPARE), LANGUAGES))
        results = list(lanes.map(lambda model: _use(model, output, threads), MODELS))
    mixture = _run("mixture", "en", output, MIX)
    parsers = [found for found in results if found["kind"] == "parser"]
    models = [found for found in results if found["kind"] != "parser"]
    sizes = [found["parameters"] for found in models if Path(found["model"]).name in MIXED]
    models.append(
        {
            **{"model": str(output / " + ".join(MIXED)), "language": "en", "kind": "mixture"},
            **{"parameters": sum(sizes), "test": mixture, "tokens_per_second": None},
            **{"seconds": mixture["seconds"], "samples": []},
        }
    )
    seconds = time.perf_counter() - begin
    if as_json:
        emit({"models": models, "parsers": parsers, "seconds": seconds})
    else:
        _show_results(models, parsers, seconds)


def _use(model: DemoModel, output: Path, threads: int) -> dict[str, Any]:
    """Train a model, measure it and use it; return what --json prints of it."""

    def run(command: str) -> Any:
        return _run(model.name, model.language, output, f"{command} {{model}}")

    trained = run(f"{model.command} --force --threads {threads} -o")
    result = {
        "model": str(output / model.name),
        "language": model.language,
        "kind": model.kind,
        "parameters": checkpoint.read_header(output / model.name).num_parameters,
        "seconds": trained["seconds"],
    }
    if model.is_parser:
        test = run("eval-parser {test} -m")
        run("parse {test} --format tree -m")
        return {**result, "test": test, "system": trained["system"]}
    test, samples = run("eval-ppl {test} -m"), run(f"generate --num 3 --seed 1 {model.prompt} -m")
    speed = trained.get("tokens_per_second") or trained["tokens"] / trained["seconds"]
    scores = {"test": test, "valid_perplexity": trained["valid_perplexity"]}
    return {**result, **scores, "tokens_per_second": speed, "samples": samples.splitlines()}


def _run(name: str, language: str, output: Path, command: str) -> Any:
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
    names = {split: str(short_path(find(language, split))) for split in ("train", "valid", "test")}
    names |= {"out": str(output), "model": str(output / name)}
    names["corpus"] = str(output / f"corpus-{language}")
    words = [word.format(**names) for word in shlex.split(command)]
    say(f"\n{TITLES[words[0]]} ({LANGUAGES[language]})\n$ seqtool {shlex.join(words)}")
    is_text = words[0] in ("generate", "parse")
    own = [sys.executable, "-m", "seqtool", *words, *([] if is_text else ["--json"])]
    done = subprocess.run(own, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL)
    if done.stderr:
        say(done.stderr.rstrip())
    if done.returncode:
        what = f"the command failed: seqtool {shlex.join(words)}"
        raise SeqtoolError(what, hint="mend what it said above, and run the demo again")
    if is_text:
        say(done.stdout.partition("\n\n")[0].rstrip())  # of trees, the first
        return done.stdout
    return json.loads(done.stdout)


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
