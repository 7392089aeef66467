"""`seqtool help`: the manual in the terminal, every command's help, and all settings."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from seqtool.cli.options import argument, flattened, show_table
from seqtool.cli.usage import WIDEST, examples
from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.core.terminal import echo, stream

MANUAL = Path(__file__).resolve().parents[1] / "manual"

# page of the manual -> what it is about, in the order of `seqtool help`
TOPICS = {
    "first-hour": "install, first models, where to read on",
    "ko": "처음 한 시간: the first hour, in Korean",
    "language-models": "prepare text; train networks; mix and adapt them",
    "ngrams": "n-gram models: smoothing, pruning, ARPA files; n-best lists",
    "parsing": "parse your language: treebank, plain text, pictures",
    "parsers": "kinds of parsers, and which one to take",
    "measure": "perplexity, surprisal, minimal pairs, scores, search",
    "look-inside": "what models do: context, gradients, gates; why gates",
    "labels": "labels of texts and names: topics, sentiments, named entities",
    "server-and-spark": "parse over HTTP; several processes, DuckDB, Apache Spark",
    "formats": "files that are read and written; reliability; reproducibility",
    "python": "the same from Python",
    "troubleshooting": "messages, memory, interrupted runs; a glossary of terms",
    "results": "what seqtool reaches, beside other programs",
    "development": "the source tree, checks and tests; what was tried without gain",
    "reference": "every command with its options",
    "settings": "every setting with its default, presets and recipes",
}
SETTINGS_INTRODUCTION = """# Settings

Every setting with its default and its meaning.

A training command takes its settings from, in this order: the defaults below, a preset
(`--preset`) or a recipe (`--config NAME`), a YAML file (`--config FILE`), its own options, and
`--set NAME=VALUE`. What comes later wins. The last part of a name is enough where only one setting
has it: `--set tied=true` is `--set model.tied=true`. `--list-settings` prints the settings of a
command as a YAML file. All that is trained has the section `training`. With `train-parser --raw`,
settings of a part have its name before them: `--set tagger.training.epochs=5`; the parts are
segmenter, multiword and tagger (taggers), parser, graph and perceptron (parsers). Settings of
other commands are options on the command line and fields of a class in Python.
"""

# title, the command whose settings they are, and their class
CONFIGURATIONS = (
    ("Neural language models", "train-lm", "lm.neural.config:NeuralLMConfig"),
    ("Parsers", "train-parser", "parsing.parser.config:ParserConfig"),
    ("Taggers", "train-tagger", "parsing.tagger.config:TaggerConfig"),
    ("Labellers of words", "train-tagger --column", "parsing.tagger.config:LabellerConfig"),
    (
        "Segmenters",
        "train-parser --raw --only segmenter",
        "parsing.segmenter.config:SegmenterConfig",
    ),
    ("Classifiers", "train-classifier", "classification.config:ClassifierConfig"),
    (
        "Everything that raw text needs",
        "train-parser --raw",
        "parsing.pipeline.config:PipelineConfig",
    ),
    ("The training loop", "", "training.config:TrainingConfig"),
    ("n-gram models", "ngram train", "lm.ngram.config:NgramConfig"),
    ("Sparse non-negative matrices", "ngram snm", "lm.snm.features:SnmConfig"),
    ("Preparation", "prepare", "text.prepared:PrepareConfig"),
    ("Generation", "generate", "lm.sampling:GenerateConfig"),
    ("Cache", "eval-ppl --cache", "lm.mixture.config:CacheConfig"),
    ("Dynamic evaluation", "eval-ppl --dynamic", "lm.neural.config:DynamicConfig"),
)


@examples(
    "seqtool help parsing",
    "seqtool help ngram train",
)
def show_manual(
    topic: list[str] | None = argument(
        None, "A page of the manual, or a command; else the list of pages.", "TOPIC"
    ),
) -> None:
    """Show the manual: its list of pages, one page, or the --help of one command.

    On a terminal a page is shown in a pager ($PAGER). Where the output is no terminal, it is
    Markdown.
    """
    from seqtool.cli import app

    name = " ".join(topic or ()).lower()
    if not name:
        show_table("", ["topic", "about"], list(TOPICS.items()))
        echo(
            "\nRead a page with `seqtool help TOPIC`, as in `seqtool help parsing`.\n"
            "The options of a command: `seqtool help ngram train` or `seqtool ngram train --help`."
        )
    elif name == "reference":
        for command in app.COMMANDS:
            _show_help(command)
    elif name == "settings":
        _show(settings_page())
    elif name in TOPICS:
        _show(page_of(name).read_text(encoding="utf-8"))
    elif name in app.COMMANDS or name in app.GROUPS:
        _show_help(name)
    else:
        near = {*TOPICS, *app.COMMANDS}
        hint = did_you_mean(name, near, otherwise="`seqtool help` lists the pages")
        raise ConfigError(f"the manual has no page or command {name!r}", hint=hint)


def page_of(topic: str) -> Path:
    """Return the file of a page: of a language, its first hour."""
    return MANUAL / topic / "first-hour.md" if topic == "ko" else MANUAL / f"{topic}.md"


def _show_help(command: str) -> None:
    """Show the --help of a command, or of a group."""
    from seqtool.cli.app import build_app

    words = command.split()
    with suppress(typer.Exit):
        build_app(words)([*words, "--help"], prog_name="seqtool")


def _show(text: str) -> None:
    if not stream().isatty():
        echo(text, end="")
        return
    from rich.markdown import Markdown

    from seqtool.core.progress import open_console

    console = open_console()
    os.environ.setdefault("LESS", "FRX")  # as git sets it: R shows colours, F ends on a short page
    pager = os.environ.get("MANPAGER") or os.environ.get("PAGER") or "less"
    with console.pager(styles="less" in pager):
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, WIDEST))


def settings_page() -> str:
    """Return the page of every setting, preset and recipe, as Markdown."""
    from seqtool.core.config import leaves, load_yaml
    from seqtool.parsing.pipeline.config import PARTS

    lines = [SETTINGS_INTRODUCTION]
    presets = ["", "## Presets", "", "What each preset changes of the defaults above."]
    for title, command, place in CONFIGURATIONS:
        lines += ["", f"## {title}", ""]
        lines += [f"`seqtool {command}`.", ""] if command else []
        name, _, kind = place.partition(":")
        module = import_module(f"seqtool.{name}")
        config = getattr(module, kind)
        for setting, field in leaves(config):
            if setting.partition(".")[0] not in (
                "training",
                *PARTS,
            ):  # these have their own section
                full = setting if command else f"training.{setting}"
                value = json.dumps(field.default)
                lines.append(f"- `{full}` = `{value}`: {field.metadata['help']}")
        tables = (
            each.table for each in vars(module).values() if getattr(each, "config", None) is config
        )
        table: Any = next(tables, {})
        for preset, values in table.items():
            option = f" --preset {preset}" if len(table) > 1 else ""
            presets += ["", f"`seqtool {command}{option}`:", ""]
            presets += [
                f"- `{setting}` = `{json.dumps(value)}`"
                for setting, value in flattened(values)
                if setting.partition(".")[0] not in PARTS
            ]
    lines += [*presets, "", "## Recipes", "", "Settings of `seqtool train-lm`, by `--config NAME`."]
    lines.append("")
    for path in sorted((MANUAL.parent / "recipes").glob("*.yaml")):
        lines.append(f"- `{path.stem}`: {load_yaml(path)['description']}")
    return "\n".join(lines) + "\n"
