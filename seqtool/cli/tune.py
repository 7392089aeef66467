"""`seqtool tune`: search for the settings with which a training has the best score."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqtool.cli import options as cli
from seqtool.cli.training import RunOptions, note_shared
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seqtool.training.tuning import Outcome, Space

LOOKED_AT = 64  # draws, to see whether a setting is read by one


class Tunable(NamedTuple):
    """A training that settings are searched for."""

    package: str  # named after the kind of model; holds its function in `train`
    name: str  # of the function
    score: str  # that counts if no other is asked for
    command: str

    def resolve(self, base: str | None, values: dict[str, Any], overrides: list[str]) -> Any:
        """Return the settings that a name or a file stands for, under others."""
        if self.name == "train_lm":  # a recipe and a file are told apart there
            from seqtool.lm.neural.config import resolve

            return resolve(base, values, overrides)
        from seqtool.parsing.config import PRESETS_OF

        presets = PRESETS_OF[self.package.rpartition(".")[2]]
        if base is not None and Path(base).suffix in (".yaml", ".yml"):
            return presets.resolve(None, Path(base), values, overrides)
        return presets.resolve(base, None, values, overrides)


KINDS = {
    "lm": Tunable("seqtool.lm.neural", "train_lm", "valid_perplexity", "train-lm"),
    "parser": Tunable("seqtool.parsing.parser", "train_parser", "dev_las", "train-parser"),
    "tagger": Tunable("seqtool.parsing.tagger", "train_tagger", "dev_tags", "train-tagger"),
    "segmenter": Tunable(
        "seqtool.parsing.segmenter",
        "train_segmenter",
        "dev_words",
        "train-parser --raw --only segmenter",
    ),
}


@dataclass(frozen=True)
class SearchOptions:
    """How settings are searched for."""

    trials: int = cli.option(16, "Trials; more than before add to a search.", "N", min=1)
    rounds: int = cli.option(
        1, "Rounds of successive halving, of which the best trials go on.", "N", min=1
    )
    factor: float = cli.option(
        3.0, "With --rounds: the best 1/X go on, with X times the epochs.", "X"
    )
    score: str | None = cli.option(
        None, "Which score counts (default valid_perplexity, dev_las, dev_tags, dev_words).", "NAME"
    )
    seed: int = cli.option(
        1, "Seed of the draws; --set training.seed is that of trainings.", "N", min=0
    )


@examples(
    "seqtool tune lm corpora/my --try hidden_size=100,200,400 --time-limit 2m",
    "seqtool tune lm my.txt --try learning_rate=1e-4..0.01:log --rounds 3",
    "seqtool tune parser train.conllu --dev dev.conllu --try exploration=0.5..1.0",
)
def tune(
    kind: str = cli.argument(..., "What is trained: lm, parser, tagger, segmenter.", "KIND"),
    data: list[Path] | None = cli.argument(
        None, "A corpus, a text or CoNLL-U; the shipped sample if not given.", "DATA"
    ),
    try_: list[str] | None = cli.setting_option(
        None, "A setting and its values a,b,c or low..high[:log]; repeatable.", "KEY=VALUES"
    ),
    config: str | None = cli.setting_option(
        None, "The other settings: a recipe or preset by name, or a YAML file.", "NAME|FILE"
    ),
    output: cli.OutputOption = Path("runs/tune"),
    dev: Path | None = cli.option(
        None, "CoNLL-U by which parsers, taggers, segmenters are chosen.", "FILE"
    ),
    *,
    search: SearchOptions,
    options: RunOptions,
) -> None:
    """Search for settings on the validation part: random search, or successive halving.

    Each trial is a run of its own, with all of --time-limit or the epochs in the last round. The
    same command again goes on where it was stopped, and trains nothing twice. The best settings are
    in best.yaml of the output directory, for --config.
    """
    from seqtool.core.progress import Display
    from seqtool.text.datasets import sample_treebank
    from seqtool.training import tuning

    if kind not in KINDS:
        what = f"nothing that is trained is called {kind!r}"
        raise ConfigError(what, hint=did_you_mean(kind, KINDS))
    tunable = KINDS[kind]
    settings = tunable.resolve(config, options.limited({}), options.set_ or [])
    space = _read_space(settings, try_ or [], options.set_ or [])
    if options.list_settings:
        return cli.print_settings(settings)
    more: dict[str, Any] = vars(search) | {"score": search.score or tunable.score}
    if kind != "lm":
        more["dev"] = dev if data or dev else sample_treebank("en", "valid")
    with Display() as display:

        def show(one: Outcome) -> None:
            problem = f" ({one.problem})" if one.problem else ""
            settings = tuning.describe(one.settings)
            display.note(f"trial {one.trial}: {_score(one)}{problem}  {settings}")

        tuned = tuning.tune(
            getattr(import_module(f"{tunable.package}.train"), tunable.name),
            _data(kind, data, dev),
            settings,
            space,
            output=output,
            force=options.force,
            on_event=display.show,
            on_outcome=show,
            device=options.device,
            threads=options.threads,
            command=cli.typed(),
            **more,
        )
    best = output / tuning.BEST
    if options.json:
        return cli.emit({"best": tuned.best, "config": best, "trials": tuned.ranking()})
    columns = ["trial", "round", tuned.score, *(name.rpartition(".")[2] for name in space)]
    rows = [
        [one.trial, one.round, _score(one), *one.settings.values(), f"{one.seconds:.0f}"]
        for one in tuned.ranking()
    ]
    cli.show_table("", [*columns, "seconds"], rows)
    cli.note(f"best: trial {tuned.best.trial}, {tuning.describe(tuned.best.settings)}")
    given = [*map(str, data or ()), *(("--dev", str(dev)) if dev else ()), "--config", str(best)]
    cli.note(f"next: seqtool {tunable.command} {shlex.join(given)}")


def _data(kind: str, data: list[Path] | None, dev: Path | None) -> Any:
    """Return what is trained on: the sample if nothing is given. It is read again by each trial."""
    from seqtool.text.datasets import sample_text, sample_treebank

    if kind == "lm" and (dev is not None or len(data or ()) > 1):
        hint = "name one prepared corpus, text or folder: its validation part comes with it"
        raise ConfigError("a language model has one DATA and no --dev", hint=hint)
    if not data:
        cli.note("no DATA given: searching on the shipped English sample")
        english = sample_text("en", "train").parent
        return english if kind == "lm" else [sample_treebank("en", "train")]
    if Path("-") in data:
        what, hint = "stdin can be read once, and a search reads its text often", "name a file"
        raise ConfigError(what, hint=hint)
    note_shared(data, dev)
    return data[0] if kind == "lm" else data


def _read_space(settings: Any, texts: list[str], set_: list[str]) -> Space:
    """Return what --try says is searched; refuse what --set says too, and what no trial reads.

    Raises:
        ConfigError: it is no space over the settings.
    """
    from seqtool.core.config import apply_overrides, refuse_unread
    from seqtool.training.tuning import draw_trials, read_space, with_values

    tried = dict(text.partition("=")[::2] for text in texts)
    if len(tried) < len(texts) or not all(values.strip() for values in tried.values()):
        what = f"--try {' --try '.join(texts):.60} is not settings and their values"
        raise ConfigError(what, hint="write each setting once: --try key=a,b,c")
    space = read_space(tried, type(settings))
    fixed = apply_overrides(type(settings), {}, set_)
    if both := [name for name in space if name in fixed]:
        what = f"{both[0]} is tried, and --set gives it one value"
        raise ConfigError(what, hint="leave out one of the two")
    configs = []
    for trial in draw_trials(space, LOOKED_AT, seed=0) if space else ():
        with suppress(ConfigError):  # the search tells which trial cannot be
            configs.append(with_values(settings, trial))
    for name in (*space, *fixed):
        refuse_unread([(config, name) for config in configs or [settings]], ())
    return space


def _score(outcome: Outcome) -> str:
    return "failed" if outcome.score is None else f"{outcome.score:.2f}"
