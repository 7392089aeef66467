"""The models of a server, by name: what each can do, and what it writes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from seqtool.core import checkpoint
from seqtool.core.arrays import CodePoints
from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.parsing.segmenter.rules import Spans
from seqtool.treebank.layouts import horizontal, read_layout, vertical
from seqtool.treebank.sentence import Sentence

Step = Literal["tokenizer", "tagger", "parser"]
STEPS: tuple[Step, ...] = get_args(Step)
# what a model has that can do a step
_ABILITIES: Mapping[Step, str] = {
    "tokenizer": "split",
    "tagger": "tag_stream",
    "parser": "parse_stream",
}

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
    steps: tuple[Step, ...]

    def split(self, stretches: Sequence[CodePoints], whole: bool) -> Sequence[Spans]:
        """Return the words and sentences of each stretch; see `Segmenter.split`."""
        spans: Sequence[Spans] = self.model.split(stretches, whole=whole)
        return spans

    def annotate(self, sentences: Sequence[Sentence], steps: frozenset[Step]) -> Iterator[Sentence]:
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


class ServedModels:
    """The models of a server, in their order; the first one is the default.

    Args:
        paths: their directories.

    Raises:
        ConfigError: two have the same name.
        ModelError: there is no model, it is damaged, or does nothing with sentences.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.by_name: dict[str, ServedModel] = {}
        for path in paths:
            name = os.path.basename(os.path.abspath(path))  # of a link, its own
            if name in self.by_name:
                what = f"two models are called {name}, the last part of their directories"
                raise ConfigError(what, hint="rename one, or give a link with another name")
            model = checkpoint.load(path)
            steps = tuple(step for step in STEPS if hasattr(model, _ABILITIES[step]))
            if not steps:
                hint = "give one that `seqtool train-parser --raw` made, or a parser or tagger"
                raise ModelError("neither splits, tags nor parses text", hint=hint, path=path)
            self.by_name[name] = ServedModel(name, model, steps)

    def warm_up(self) -> None:
        """Do each step once, so that nothing is left to be compiled when the first text comes."""
        for served in self.by_name.values():
            sentences = list(read_layout(["seqtool ."], "horizontal"))
            if "tokenizer" in served.steps:
                sentences = list(served.model.segment(["seqtool."]))
            steps = frozenset(served.steps) - {"tokenizer"}
            with suppress(DataError):  # a parser that reads tags, which only requests bring
                list(served.annotate(sentences, steps))
        # what is loaded stays, so the collector of cycles need not look at it again and again
        gc.freeze()

    @property
    def default(self) -> ServedModel:
        """The first one."""
        return next(iter(self.by_name.values()))

    def find(self, name: str) -> ServedModel | None:
        """Return the model of a name, or the first whose name begins so, up to a hyphen.

        As of UDPipe: `english` finds `english-ewt`. Without a name it is the default.
        """
        if not name:
            return self.default
        longer = (model for key, model in self.by_name.items() if key.startswith(f"{name}-"))
        return self.by_name.get(name) or next(longer, None)
