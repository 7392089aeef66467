"""Settings of all that raw text needs: segmenter, tagger and parser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtool.core.config import (
    Config,
    apply_overrides,
    from_dict,
    load_yaml,
    set_value,
    setting,
    to_dict,
)
from seqtool.parsing.parser import config as parsers
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.segmenter import config as segmenters
from seqtool.parsing.segmenter.config import SegmenterConfig
from seqtool.parsing.tagger import config as taggers
from seqtool.parsing.tagger.config import TaggerConfig

KIND = "pipeline"
PARTS = ("segmenter", "multiword", "tagger", "parser")


@dataclass(frozen=True)
class PipelineConfig(Config):
    """All settings."""

    segmenter: SegmenterConfig = setting(SegmenterConfig, "what splits text into words")
    multiword: TaggerConfig = setting(
        TaggerConfig, "what tells whether a form such as French `des` is one word or several"
    )
    tagger: TaggerConfig = setting(TaggerConfig, "what tags words")
    parser: ParserConfig = setting(ParserConfig, "what finds their heads")
    segmenters: int = setting(
        1, "of seeds one apart, that split by the mean of their scores", minimum=1
    )
    multiwords: int = setting(
        1,
        "of seeds one apart; trained where the treebank has enough of such forms; 0: the segmenter "
        "decides by itself",
        minimum=0,
    )
    taggers: int = setting(1, "of seeds one apart, that tag by the mean of their scores", minimum=1)
    parsers: int = setting(
        1, "of seeds one apart, that parse by the mean of their scores", minimum=1
    )
    folds: int = setting(
        5,
        "parts of the treebank, each tagged by a tagger of the others for the parser",
        minimum=2,
    )


def folders(part: str, num: int) -> list[str]:
    """The folders of the members of a part: `tagger`, `tagger-2` ..."""
    return [part, *(f"{part}-{number}" for number in range(2, num + 1))]


def preset(name: str) -> dict[str, Any]:
    """Return the settings of a preset of the parser, with those of the tagger that goes with it.

    Raises:
        ConfigError: there is none of that name; the hint lists near ones.
    """
    return {
        "segmenter": {section: dict(values) for section, values in segmenters.DEFAULTS.items()},
        "multiword": _multiword(),
        "tagger": taggers.preset("fast" if name == "fast" else "accurate"),
        "parser": parsers.preset(name),
        **({"taggers": 2, "parsers": 2} if name == "accurate" else {"multiwords": 0}),
    }


def _multiword() -> dict[str, Any]:
    settings = taggers.preset("accurate")
    settings["training"]["epochs"] = 12
    settings["learning"] = {"lemma_weight": 0.0}
    return settings


def resolve(
    preset_name: str | None,
    file: Path | None,
    values: Mapping[str, Any],
    overrides: Iterable[str],
    *,
    run: Path | None = None,
) -> PipelineConfig:
    """Combine a preset (or the settings of a run that is resumed), a file, options and overrides.

    Args:
        preset_name: of the parser; None for `accurate`.
        file: a YAML file of settings, by part.
        values: dotted setting of the parser -> value, from the options of the command; the seed is
            that of all parts.
        overrides: `name=value` texts, which win.
        run: the directory of the run to continue, whose settings are the base.

    Raises:
        ConfigError: an unknown preset or setting, or an impossible value.
    """
    base = preset(preset_name or "accurate")
    if run is not None and preset_name is None:
        from seqtool.parsing.train import RunRecord

        base = to_dict(RunRecord.read(run, KIND, PipelineConfig).config)
    if file is not None:
        for part, sections in load_yaml(file).items():
            if isinstance(sections, dict):
                for section, settings in sections.items():
                    if isinstance(settings, dict):
                        base.setdefault(part, {}).setdefault(section, {}).update(settings)
                    else:
                        base.setdefault(part, {})[section] = settings
            else:
                base[part] = sections
        from_dict(PipelineConfig, base)
    for name, value in values.items():
        for part in PARTS if name == "training.seed" else ("parser",):
            set_value(PipelineConfig, base, f"{part}.{name}", value)
    apply_overrides(PipelineConfig, base, overrides)
    return from_dict(PipelineConfig, base)
