"""The text that a language model knows as held out: the test or validation part of its own corpus.

A run of `train-lm` records its prepared corpus in `run.json`. An n-gram model records in its header
the corpus, or the validation and test files beside its training text, relative to its directory.
What a model of either kind was trained on is known by SHA-256, so that text which has changed since
is never taken for its own.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, storage
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import is_corpus
from seqtool.core.terminal import short_path

MAX_PARTS = 100  # of a mixture on disk, those inside its parts counted
HELD_OUT_SPLITS = ("test", "valid")  # the first that is there is measured
CORPUS, FILES = "corpus", "held_out"  # what the header of an n-gram model calls them


@dataclass(frozen=True)
class HeldOutText:
    """A text that models were not trained on.

    Attributes:
        paths: a prepared corpus, or files of text.
        split: which part it is.
        is_corpus: whether it is a prepared corpus, of which `split` is to be read.
        identity: equal for equal texts, wherever they are.
    """

    paths: tuple[Path, ...]
    split: str
    is_corpus: bool
    identity: Hashable


def describe_held_out(
    output: str | Path, *, corpus: str | Path | None = None, files: Mapping[str, Sequence[str]] = {}
) -> dict[str, Any]:
    """Return what the header of a model in `output` records of its held-out text.

    Args:
        output: the directory of the model.
        corpus: the prepared corpus that it was trained on.
        files: split -> its files, where it was trained on text with other splits beside it.
    """
    base = Path(output).resolve()

    def reference(path: str | Path) -> str:
        return os.path.relpath(Path(path).resolve(), base)

    if corpus is not None:
        return {CORPUS: reference(corpus)}
    references = {
        split: [*map(reference, files[split])] for split in HELD_OUT_SPLITS if split in files
    }
    return {FILES: references} if references else {}


def moved(data: Mapping[str, Any], source: str | Path, output: str | Path) -> dict[str, Any]:
    """Return what the header of a model in `source` records, for one in `output`."""
    base, corpus = Path(source).resolve(), data.get(CORPUS)
    files = {
        split: [str(base / name) for name in names] for split, names in data.get(FILES, {}).items()
    }
    return {**data, **describe_held_out(output, corpus=corpus and base / corpus, files=files)}


def held_out_text(models: Sequence[Path], *, split: str | None = None) -> HeldOutText:
    """Return the held-out text of models, the same for all of them.

    Args:
        models: model directories; of a mixture, its parts count.
        split: which part of the corpus; test, else valid, when not given.

    Raises:
        ModelError: a model does not say what it was trained on, or has no held-out part.
        DataError: the corpus is no longer there, or has changed.
        ConfigError: the models were trained on different texts.
    """
    parts = [part for model in models for part in islice(parts_of(model), MAX_PARTS)]
    first, *others = [_of_model(part, split) for part in parts]
    for part, other in zip(parts[1:], others, strict=True):
        if other.identity != first.identity:
            raise ConfigError(
                f"{parts[0]} and {part} were not trained on the same corpus, so they have no "
                "held-out text together",
                hint="name a text to measure them on: seqtool eval-ppl TEXT",
            )
    return first


def _hint(model: Path) -> str:
    return f"name a text to measure it on: seqtool eval-ppl TEXT -m {shlex.quote(str(model))}"


def parts_of(model: Path) -> Iterator[Path]:
    """Give the models that a mixture refers to, those in its parts too; of others, itself."""
    header = None if checkpoint.is_foreign(model) else checkpoint.read_header(model)
    if header is None or header.kind != "mixture":
        yield model
        return
    try:
        references = [part["path"] for part in header.config["parts"].values() if "path" in part]
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError("damaged model header", hint=_hint(model), path=model) from error
    directory = checkpoint.find(model)
    for name in references:
        yield from parts_of(short_path((directory / name).resolve()))


def _of_model(model: Path, split: str | None) -> HeldOutText:
    if checkpoint.is_foreign(model):
        what = "an ARPA file does not say what it was trained on"
        raise ModelError(what, hint=_hint(model), path=model)
    data, text = checkpoint.read_header(model).data, None
    try:
        try:
            text = _of_corpus(model, data, split) or _of_files(model, data, split)
        except DataError:
            if (text := _of_sample(data, split)) is None:
                raise
        text = text or _of_sample(data, split)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ModelError("damaged model header", hint=_hint(model), path=model) from error
    if text is None:
        part = "held-out" if split is None else split
        what = f"no text was given, and the model has no {part} part of its own corpus"
        raise ModelError(what, hint=_hint(model), path=model)
    return text


def _chosen(there: Collection[str], split: str | None) -> str | None:
    wanted = HELD_OUT_SPLITS if split is None else (split,)
    return next((name for name in wanted if name in there), None)


def _of_corpus(model: Path, data: Mapping[str, Any], split: str | None) -> HeldOutText | None:
    """Return the part of the prepared corpus that a model was trained on, if it was on one."""
    recorded, record = data.get(CORPUS), checkpoint.run_record(model)
    if recorded is None and record.is_file():
        recorded = storage.read_object(record).get("corpus")
    if recorded is None:
        return None
    path = short_path(Path(os.path.normpath(model.resolve() / str(recorded))))
    if not is_corpus(path):
        what = "the corpus that the model was trained on is no longer there"
        raise DataError(what, hint=_hint(model), path=path)
    from seqtool.text.prepared import PreparedCorpus

    info = PreparedCorpus.open(path).info
    chosen = _chosen(info["splits"], split)
    if _content(info) != _content(data):
        what = "has changed since the model was trained on it"
        raise DataError(what, hint=_hint(model), path=path)
    return HeldOutText((path,), chosen, True, _identity(info, chosen)) if chosen else None


def _of_files(model: Path, data: Mapping[str, Any], split: str | None) -> HeldOutText | None:
    """Return the files beside the training text, of a model that was trained on text."""
    files, base = data.get(FILES, {}), model.resolve()
    chosen = _chosen(files, split)
    if chosen is None:
        return None
    paths = [short_path(Path(os.path.normpath(base / name))) for name in files[chosen]]
    if missing := [path for path in paths if not path.is_file()]:
        what = "the held-out text of the model is no longer there"
        raise DataError(what, hint=_hint(model), path=missing[0])
    return _text(paths, chosen)


def _of_sample(data: Mapping[str, Any], split: str | None) -> HeldOutText | None:
    """Return a text of the shipped sample, for a model that was trained on that."""
    from seqtool.text.datasets import sample_language, sample_text

    trained = [source for source in data.get("sources", []) if source.get("split") == "train"]
    language = sample_language(trained[0].get("sha256", "")) if len(trained) == 1 else None
    chosen = _chosen(HELD_OUT_SPLITS, split)
    if language is None or chosen is None:
        return None
    path = sample_text(language, "valid" if chosen == "valid" else "test")
    return _text([short_path(path)], chosen)


def _text(paths: Sequence[Path], split: str) -> HeldOutText:
    sums = tuple(storage.sum_of(path) for path in paths)
    return HeldOutText(tuple(paths), split, False, ("files", sums))


def _sums(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the split and the SHA-256 of each source of a corpus; of Spark's, its path."""
    sources = info.get("sources", [])
    return [(source["split"], source.get("sha256", source["path"])) for source in sources]


def _content(info: Mapping[str, Any]) -> list[Any]:
    """Return what tells a prepared corpus from one of other text, or with other splits."""
    return [info.get("splits"), info.get("shares"), _sums(info)]


def _identity(info: Mapping[str, Any], split: str) -> Hashable:
    """Return what tells a part of a prepared corpus from other texts."""
    if info.get("shares") is None:
        return "files", tuple(sha256 for name, sha256 in _sums(info) if name == split)
    # a line is drawn by its number and the seed
    config = info.get("config", {})
    draw = (tuple(info["shares"]), config.get("seed"), config.get("skip_empty_lines"))
    return "drawn", split, tuple(_sums(info)), draw
