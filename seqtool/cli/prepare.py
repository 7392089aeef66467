"""`seqtool fetch`: a data set to text files; `seqtool prepare`: text to a prepared corpus."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqtool.cli import options as cli
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.terminal import echo, stream

if TYPE_CHECKING:
    from seqtool.text.prepared import PrepareConfig

DEFAULT_OUTPUT = "runs/corpus"
COUNTS = ("sentences", "tokens", "unknown")
SHOWN = 10  # broken sentences, and doubtful lines


@cli.takes_options(
    "seqtool.text.prepared:PrepareConfig",
    {
        **cli.same_names("unit", "vocab_size", "min_count", "column", "lowercase", "reverse"),
        **cli.same_names("skip_empty_lines", "special_tokens", "byte_fallback"),
        "--vocab": cli.option_for("vocab", metavar="FILE"),
        "--field": cli.option_for("field", help=cli.FIELD_HELP),
        "--character-coverage": cli.option_for("character_coverage", metavar="SHARE"),
    },
    panel=None,
    shows_defaults=True,
)
@examples(
    "seqtool prepare my.txt -o corpora/my",
    "seqtool prepare texts/ --unit bpe --vocab-size 8000 -o corpora/bpe",
    "seqtool prepare train.conllu --valid dev.conllu --column form -o corpora/ud",
)
def prepare(
    context: typer.Context,
    inputs: list[str] | None = cli.argument(
        None, "Text, or a folder with its splits, or CoNLL-U; else the sample.", "INPUT"
    ),
    output: str = cli.option(
        DEFAULT_OUTPUT, "Directory; with --column, - is text on stdout.", "DIR", "-o"
    ),
    valid: str | None = cli.option(None, "The validation text.", "FILE"),
    test: str | None = cli.option(None, "The test text.", "FILE"),
    split: str | None = cli.option(
        None, "Of train, valid and test lines; else 90,5,5.", "PERCENTAGES"
    ),
    memory: cli.MemoryOption = None,
    seed: cli.SeedOption = None,
    force: cli.ForceOption = False,
    strict: cli.StrictOption = False,
    as_json: cli.JsonOption = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Turn text into a prepared corpus: a vocabulary, and ids that map into memory.

    Memory does not grow with the text, only with its different words. The corpus's path is printed.

    Of a treebank nothing is written without --column: its sentences are checked, and what it holds
    is printed.
    """
    column = settings.get("column")
    if inputs and column is None and _are_treebanks(inputs):
        what = "means nothing for a treebank that is only checked"
        allowed = {"inputs", "as_json", "strict"}
        _refuse_others(context, allowed, what, ", or take a column of it with --column form")
        return check_treebanks(inputs, as_json, strict=strict)
    if strict:
        raise ConfigError("--strict is for treebanks", hint="leave --strict out")
    from seqtool.core.config import from_dict
    from seqtool.core.progress import progress_bar
    from seqtool.core.runtime import parse_size
    from seqtool.text.datasets import sample_text, sample_treebank
    from seqtool.text.prepared import PrepareConfig, parse_shares
    from seqtool.text.prepared import prepare as prepare_text

    if split is not None:
        settings["split"] = parse_shares(split)
    config = from_dict(PrepareConfig, {**settings, "seed": seed or 0})
    if not inputs:
        inputs = [cli.stdin_or_sample("INPUT", "trees" if column else "text", training="using")]
        if inputs != ["-"]:
            find = sample_treebank if column else sample_text
            inputs = [str(find("en", "train"))]
            if config.split is None:
                valid, test = valid or str(find("en", "valid")), test or str(find("en", "test"))
    if output == "-":
        if column is None:
            hint = "name it with -o, or add --column form"
            raise ConfigError("a corpus is a directory", hint=hint)
        allowed = {"inputs", "output", "column", "lowercase"}
        _refuse_others(context, allowed, "means nothing for a text that is written to stdout")
        return _write_text(inputs, config)
    start = time.perf_counter()
    with progress_bar("prepare", is_bytes=True) as on_progress:
        corpus = prepare_text(
            inputs,
            output,
            config,
            valid=valid,
            test=test,
            memory=None if memory is None else parse_size(memory),
            force=force,
            on_progress=on_progress,
        )
    seconds = time.perf_counter() - start
    if as_json:
        return cli.emit({"corpus": str(corpus.path), **corpus.info, "seconds": seconds})
    _summarise(corpus.info, seconds)
    echo(corpus.path)


def _write_text(inputs: Sequence[str], config: PrepareConfig) -> None:
    """Write a column of treebanks to stdout, a sentence a line."""
    from seqtool.core.reading import read_blocks

    shown = stream()
    shown.buffer.writelines(read_blocks(inputs, column=config.column, lowercase=config.lowercase))
    shown.flush()


def _summarise(info: Mapping[str, Any], seconds: float) -> None:
    """Say on stderr what the corpus holds, by its `corpus.json`."""
    learnt = ""
    if (sample := info["learnt_from"]) is not None:
        share = sample["lines"] / sample["of"]
        what = "all training lines" if share == 1 else f"{share:.1%} of the training lines, drawn"
        learnt = f", learnt from {what}"
    cli.note(f"unit {info['unit']}, vocabulary of {info['vocabulary_size']:,} symbols{learnt}")
    for name, part in info["splits"].items():
        amounts = "  ".join(f"{part[column]:>12,} {column}" for column in COUNTS)
        cli.note(f"{name:<5}{amounts} ({part['unknown'] / part['tokens']:.2%})")
    if info["shares"] is not None and info["config"]["split"] is None:
        cli.note(f"no splits were given: {describe_draw(info)}")
    num_bytes = sum(part["bytes"] for part in info["splits"].values())
    rate = f", {num_bytes / 1e6 / seconds:.0f} MB/s" if num_bytes > 1e7 else ""
    cli.note(f"{num_bytes / 1e6:.1f} MB in {seconds:.1f} s{rate}")


def describe_draw(info: Mapping[str, Any]) -> str:
    """Say how the lines of a text were drawn for the splits, from its `corpus.json`."""
    shares = zip(info["shares"], ("train", "valid", "test"), strict=True)
    drawn = ", ".join(f"{share:g}% {name}" for share, name in shares)
    return f"each line was drawn for {drawn}, seed {info['config']['seed']}"


def _are_treebanks(inputs: Sequence[str]) -> bool:
    """Whether the inputs are treebanks, all of them, by their names."""
    from seqtool.core.reading import comes_with_treebanks, holds_treebanks, is_text

    def is_read_as_text(name: str) -> bool:
        files = Path(name).iterdir() if Path(name).is_dir() else ()
        texts = (file for file in files if is_text(file) and not comes_with_treebanks(file))
        return not holds_treebanks(name) or any(texts)

    text = next(filter(is_read_as_text, inputs), None)
    treebank = next((name for name in inputs if not is_read_as_text(name)), None)
    if text is not None and treebank is not None:
        what = f"is a treebank, but {text} is not"
        raise DataError(what, hint="prepare them apart", path=treebank)
    return text is None


def _refuse_others(context: typer.Context, allowed: set[str], what: str, advice: str = "") -> None:
    """Refuse options that were typed and are not allowed here; `--max-line` is of all reading."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if cli.is_typed(context, name) and name not in allowed | {"max_line"}:
            option = max(parameter.opts, key=len)
            raise ConfigError(f"{option} {what}", hint=f"leave {option} out{advice}")


def check_treebanks(inputs: list[str], as_json: bool, *, strict: bool = False) -> None:
    """Print what treebanks hold, and list broken sentences and doubtful lines, the first of them.

    Broken sentences are an error, and if `strict`, doubtful lines too.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.treebank.summary import describe_treebank, summary_rows

    start = time.perf_counter()
    with progress_bar("check", is_bytes=True) as on_progress:
        summary = describe_treebank(inputs, on_progress=on_progress)
    seconds = time.perf_counter() - start
    if as_json:
        cli.emit({**vars(summary), "seconds": seconds})
    else:
        rows = summary_rows(summary)
        width = max(len(name) for name, _ in rows)
        for name, text in rows:
            echo(f"{name:<{width}}  {text}")
    for broken in summary.broken[:SHOWN]:
        cli.note(f"broken: {broken}")
    if summary.broken:
        total = summary.sentences + len(summary.broken)
        what = f"{len(summary.broken):,} of {counted(total, 'sentence')} cannot be used"
        raise DataError(what, hint="mend them; a training leaves them out with --skip-invalid")
    for doubtful in summary.doubtful[:SHOWN]:
        cli.note(f"doubtful: {doubtful}")
    if strict and summary.doubtful:
        first, hint = summary.doubtful[0], "mend it, or leave --strict out"
        raise DataError(first.message, hint=hint, path=first.path, line=first.line)


@examples(
    "seqtool fetch --list",
    "seqtool fetch wikitext-2 -o corpora/wikitext-2/text",
    "seqtool fetch UD_Hungarian-Szeged --release r2.16",
)
def fetch(
    name: str | None = cli.argument(
        None,
        "wikitext-2, ptb, or a treebank, as UD_Hungarian-Szeged; else all texts are listed.",
        "NAME",
    ),
    output: Path | None = cli.option(
        None, "The folder to make; NAME by default.", "DIR", "-o", "--output"
    ),
    source: Path | None = cli.option(
        None, "A folder or zip file with the texts.", "FOLDER", "--from"
    ),
    release: str | None = cli.option(None, "Of a treebank (default r2.16).", "rX.Y"),
    force: cli.ForceOption = False,
    list_all: bool = cli.option(False, "List the data sets of text.", "", "--list"),
    as_json: cli.JsonOption = False,
) -> None:
    """Fetch a public data set, checked by its SHA-256, or a treebank of Universal Dependencies.

    The folder's path is printed. There are no sums to check a treebank by: all of it must be
    CoNLL-U. Treebanks were tested against a local server only, nothing against the real one.
    """
    from seqtool.parsing import public_treebanks
    from seqtool.text import datasets

    if release is not None and (list_all or name is None):
        raise ConfigError("--release is of a treebank", hint="name one, as UD_Hungarian-Szeged")
    if list_all or name is None:
        known = [{"name": name, **vars(data)} for name, data in datasets.DATASETS.items()]
        if as_json:
            return cli.emit({"datasets": known})
        for data in known:
            size = f"{data['size'] / 1e6:.1f} MB"
            echo(f"{data['name']:<12} {data['description']} ({size}, {data['licence']})")
        return
    is_treebank = name.startswith("UD_")
    if (source if is_treebank else release) is not None:
        option, kind = ("--from", "texts") if is_treebank else ("--release", "treebanks, UD_...")
        raise ConfigError(f"{option} is for {kind}", hint=f"leave it out to fetch {name}")
    cli.note(f"fetching {name}")
    if is_treebank:
        folder = public_treebanks.fetch_treebank(
            name, output or name, release=release or public_treebanks.RELEASE, force=force
        )
    else:
        folder = datasets.fetch(
            name, output or name, source=source, force=force, on_message=cli.note
        )
    description = datasets.describe(folder)
    if as_json:
        return cli.emit({"folder": str(folder), **description})
    splits = description["splits"]
    wanted = public_treebanks.PARTS if is_treebank else (*datasets.DATASETS[name].splits,)
    for split, entry in splits.items():
        remark = "" if entry.get("as_published", True) else ", not the published file byte for byte"
        cli.note(f"{split}: {entry['file']}, {entry['bytes']:,} bytes{remark}")
    if missing := [split for split in wanted if split not in splits]:
        cli.note(f"not in the source: {', '.join(sorted(missing))}")
    cli.note(f"licence: {description['licence']}")
    if is_treebank:
        files = {part: shlex.quote(str(folder / entry["file"])) for part, entry in splits.items()}
        dev = f" --dev {files['dev']}" if "dev" in files else ""
        command = f"inspect {shlex.quote(str(folder))}"
        if "train" in files:
            command = f"train-parser {files['train']}{dev} -o runs/{name}"
        cli.note(f"next: seqtool {command}")
    echo(folder)
