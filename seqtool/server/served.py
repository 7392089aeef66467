"""The models of a server, by name: what each can do, and what it writes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.treebank.layouts import horizontal, read_layout, vertical
from seqtool.treebank.sentence import Sentence

# step -> the method of a model that can do it
STEPS = {"tokenizer": "segment", "tagger": "tag_stream", "parser": "parse_stream"}

# by the names of UDPipe; what they write can be joined
OUTPUTS: Mapping[str, Callable[[Sentence], str]] = {
    "conllu": Sentence.to_conllu,
    "horizontal": horizontal,
    "vertical": vertical,
    "plaintext": Sentence.written,
}


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model under the name that requests call it by.

    Attributes:
        name: the last part of its directory.
        model: a pipeline, parser, tagger or segmenter.
        steps: what it can do.
    """

    name: str
    model: Any
    steps: tuple[str, ...]

    def annotate(self, sentences: Sequence[Sentence], steps: Collection[str]) -> Iterator[Sentence]:
        """Give sentences, in order, with tags and trees as asked for.

        With the step "tagger" all tags are predicted; else a model that has a tagger and is to
        parse gives words the tags that they lack.

        Raises:
            DataError: when iterated: words lack what a parser without a tagger reads.
        """
        if "parser" in steps:
            retag = {"retag": "tagger" in steps} if "tagger" in self.steps else {}
            yield from self.model.parse_stream(sentences, **retag)
        elif "tagger" in steps:
            yield from self.model.tag_stream(sentences, retag=True)
        else:
            yield from sentences

    def warm_up(self) -> None:
        """Do each step once, so that nothing is left to be compiled when the first text comes."""
        sentences = list(read_layout(["seqtool ."], "horizontal"))
        if "tokenizer" in self.steps:
            sentences = list(self.model.segment(["seqtool."]))
        with suppress(DataError):  # a parser that reads tags, which only requests bring
            list(self.annotate(sentences, self.steps))


def open_models(paths: Sequence[Path]) -> dict[str, ServedModel]:
    """Return the models of directories by name, in this order, ready to work.

    Raises:
        ConfigError: two have the same name.
        ModelError: there is no model, it is damaged, or does nothing with sentences.
    """
    models: dict[str, ServedModel] = {}
    for path in paths:
        name = os.path.basename(os.path.abspath(path))  # of a link, its own
        if name in models:
            what = f"two models are called {name}, the last part of their directories"
            raise ConfigError(what, hint="rename one, or give a link with another name")
        model = checkpoint.load(path)
        steps = tuple(step for step, method in STEPS.items() if hasattr(model, method))
        if not steps:
            hint = "give one that `seqtool train-parser --raw` made, or a parser or tagger"
            raise ModelError("neither splits, tags nor parses text", hint=hint, path=path)
        models[name] = ServedModel(name, model, steps)
        models[name].warm_up()
    # what is loaded stays, so the collector of cycles need not look at it again and again
    gc.freeze()
    return models


def find_model(models: Mapping[str, ServedModel], name: str) -> ServedModel | None:
    """Return the model of a name, or the first whose name begins so, up to a hyphen.

    As of UDPipe: `english` finds `english-ewt`. Without a name it is the first one.
    """
    if not name:
        return next(iter(models.values()))
    longer = (model for key, model in models.items() if key.startswith(f"{name}-"))
    return models.get(name) or next(longer, None)
