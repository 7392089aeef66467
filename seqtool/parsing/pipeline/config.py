"""Settings of all that raw text needs: segmenter, tagger and parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from seqtool.core.config import DEEPEST, Config, setting
from seqtool.core.errors import ConfigError
from seqtool.parsing.config import Presets
from seqtool.parsing.parser import config as parsers
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.segmenter.config import SEGMENTERS, SegmenterConfig
from seqtool.parsing.tagger.config import TAGGERS, TaggerConfig
from seqtool.training.config import seconds_of

KIND = "pipeline"
PARTS = ("segmenter", "multiword", "tagger", "parser", "graph", "perceptron")
PARSERS = ("parser", "graph", "perceptron")  # those of PARTS that find heads
NEURAL = ("parser", "graph")  # those of PARSERS that read vectors
_VOTES = {"graphs": 1, "perceptrons": 1}  # of `accurate` and `best`: parsers of three kinds


def _number(default: int, help: str, *, minimum: int = 0) -> Any:
    return setting(default, help, minimum=minimum, maximum=DEEPEST)


@dataclass(frozen=True)
class PipelineConfig(Config):
    """All settings."""

    replaced: ClassVar[Mapping[str, str]] = {
        f"{part}.{given}": f"{part}.{other}"
        for part, (given, other) in product(PARSERS, ParserConfig.replaced.items())
    }

    segmenter: SegmenterConfig = setting(SegmenterConfig, "what splits text into words")
    multiword: TaggerConfig = setting(
        TaggerConfig,
        "what tells whether a form such as French `des` is one word or several",
        when="multiwords > 0",
    )
    tagger: TaggerConfig = setting(TaggerConfig, "what tags words")
    parser: ParserConfig = setting(ParserConfig, "what finds their heads")
    graph: ParserConfig = setting(
        ParserConfig,
        "what finds heads in another way, and votes with the parser",
        when="graphs > 0",
    )
    perceptron: ParserConfig = setting(
        ParserConfig,
        "what finds heads by sparse features, and votes with them",
        when="perceptrons > 0",
    )
    segmenters: int = _number(
        1, "members of the ensemble that splits text, of seeds one apart", minimum=1
    )
    multiwords: int = _number(
        1,
        "taggers, of seeds one apart, that decide whether a form such as French `des` is one word "
        "or several; trained where the treebank has enough such forms; 0: the segmenter decides",
    )
    taggers: int = _number(1, "members of the ensemble that tags, of seeds one apart", minimum=1)
    parsers: int = _number(1, "members of the ensemble that parses, of seeds one apart", minimum=1)
    graphs: int = _number(
        0, "members of the ensemble that votes with the parser, of seeds one apart; 0: none votes"
    )
    perceptrons: int = _number(
        0,
        "parsers of sparse features that vote with the others, of seeds one apart; 0: none votes",
    )
    folds: int = _number(
        5, "parts of the treebank, each tagged by a tagger of the others for the parser", minimum=2
    )
    time_limit: str | float | None = setting(
        None,
        "train all parts together for so long, in place of their `epochs`: each has a fixed share",
    )

    @property
    def limit_seconds(self) -> float | None:
        """Return the seconds that the training of all parts may take, where there is a limit."""
        return None if self.time_limit is None else seconds_of(self.time_limit)

    def check(self) -> None:
        """Refuse a limit of all parts beside that of one."""
        if self.time_limit is None:
            return
        seconds_of(self.time_limit)
        for part in PARTS:
            if getattr(self, part).training.time_limit is not None:
                what = f"time_limit is set, and {part}.training.time_limit as well"
                raise ConfigError(what, hint="leave one of them out")


def folders(part: str, num: int) -> list[str]:
    """Return the folders of the members of a part: `tagger`, `tagger-2` ..."""
    return [part if number == 1 else f"{part}-{number}" for number in range(1, num + 1)]


def _tagger(name: str) -> dict[str, Any]:
    """Return the settings of the taggers that go with a preset."""
    settings = TAGGERS.settings("fast" if name == "fast" else "accurate")
    if name not in ("fast", "best"):  # which is most of the time otherwise
        settings["learning"]["min_steps"] = 128
        settings["training"]["epochs"] = 10
    return settings


def _multiword() -> dict[str, Any]:
    settings = TAGGERS.settings("accurate")
    settings["training"]["epochs"] = 12
    settings["learning"] = {"lemma_weight": 0.0}
    del settings["model"]  # it has few tags to tell apart
    return settings


def _settings_of(name: str) -> dict[str, Any]:
    """Return the settings of all parts that go with a preset: of the parser's, or `best`."""
    parser = parsers.PRESETS.settings("accurate" if name == "best" else name)
    if name == "accurate":  # the graph-based parser finds more in a small treebank
        parser["learning"]["small_epochs"] = 0
    return {
        "segmenter": SEGMENTERS.settings(),
        "multiword": _multiword(),
        "tagger": _tagger(name),
        "parser": parser,
        "graph": parsers.PRESETS.settings("graph"),
        "perceptron": parsers.PRESETS.settings("linear"),
        "taggers": 1 + (name == "best"),
        "multiwords": int(name in ("accurate", "graph", "best")),
        **(_VOTES if name in ("accurate", "best") else {}),
    }


def _targets(option: str) -> list[str]:
    """Return the settings of an option: the seed is that of all parts, as is the limit of time.

    The epochs, and the columns that are read, are those of all that find heads; what else is of the
    training loop that of the neural ones; all others are the parser's.
    """
    if option == "training.time_limit":
        return ["time_limit"]
    parts: tuple[str, ...] = NEURAL if option.startswith("training.") else ("parser",)
    parts = {"training.epochs": PARSERS, "model.fields": PARSERS, "training.seed": PARTS}.get(
        option, parts
    )
    return [f"{part}.{option}" for part in parts]


PRESETS = Presets(
    KIND,
    PipelineConfig,
    {name: _settings_of(name) for name in (*parsers.PRESETS.table, "best")},
    default="accurate",
    targets=_targets,
    implied=parsers.implied,
)
preset = PRESETS.settings
