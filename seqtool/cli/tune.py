"""`seqtool tune`: search for the settings with which a training has the best score."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.options import (
    DeviceOption,
    ForceOption,
    JsonOption,
    OutputOption,
    ThreadsOption,
    emit,
    note,
    print_settings,
    show_table,
    typed,
)
from seqtool.cli.training import (
    PANEL,
    ListSettingsOption,
    note_shared,
    resolve_length,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seqtool.training.tuning import Outcome, Space

LOOKED_AT = 64  # draws, to see whether a setting is read by one


@dataclass(frozen=True)
class Tunable:
    """A training that settings are searched for.

    Attributes:
        package: holds its settings in `config` and its function in `train`.
        name: of the function.
        score: the one that counts if no other is asked for.
    """

    package: str
    name: str
    score: str

    @property
    def train(self) -> Callable[..., Any]:
        """The function of the library."""
        found: Callable[..., Any] = getattr(import_module(f"{self.package}.train"), self.name)
        return found

    def resolve(self, base: str | None, values: dict[str, Any], overrides: list[str]) -> Any:
        """Return the settings that a name or a file stands for, under others."""
        combine = import_module(f"{self.package}.config").resolve
        if self.name == "train_lm":  # a recipe and a file are told apart there
            return combine(base, values, overrides)
        if base is not None and Path(base).suffix in (".yaml", ".yml"):
            return combine(None, Path(base), values, overrides)
        return combine(base, None, values, overrides)


KINDS = {
    "lm": Tunable("seqtool.lm.neural", "train_lm", "valid_perplexity"),
    "parser": Tunable("seqtool.parsing.parser", "train_parser", "dev_las"),
    "tagger": Tunable("seqtool.parsing.tagger", "train_tagger", "dev_tags"),
    "segmenter": Tunable("seqtool.parsing.segmenter", "train_segmenter", "dev_words"),
}


@examples(
    "seqtool tune lm corpora/my --try hidden_size=100,200,400 --time-limit 2m",
    "seqtool tune lm my.txt --try learning_rate=1e-4..0.01:log --rounds 3",
    "seqtool tune parser train.conllu --dev dev.conllu --space space.yaml",
)
def tune(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What is trained: lm, parser, tagger, segmenter.")
    ],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA",
            help="A prepared corpus or a text, or CoNLL-U files. Without any, the shipped English "
            "sample.",
        ),
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="KEY=VALUES",
            help="A setting and what it may be: a,b,c, or low..high (whole numbers if both are), "
            "or low..high:log (logarithms as likely as each other); repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The same as a YAML file: lines `training.learning_rate: 1e-4..1e-2:log` and "
            "`model.hidden_size: [100, 200]`.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="The other settings: a recipe or preset by name, or a YAML file.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="One of the other settings; repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    output: OutputOption = Path("runs/tune"),
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CoNLL-U by which parsers, taggers, segmenters are chosen."
        ),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Trials; more than before add to a search. The first has the settings as they "
            "are, if they are among what is tried.",
        ),
    ] = 16,
    rounds: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Rounds of successive halving: the first has a share of the time or epochs, and "
            "only the best trials come into the next.",
        ),
    ] = 1,
    factor: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="With --rounds: the best 1/X of the trials come into the next round, with X times "
            "the time or epochs.",
        ),
    ] = 3.0,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which score counts (default valid_perplexity, dev_las, dev_tags, dev_words).",
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time of one training (90s, 15m) in the last round."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Seed of the draws; --set training.seed is that of trainings."
        ),
    ] = 1,
    list_settings: ListSettingsOption = False,
    force: ForceOption = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Search for settings on the validation part: random search, or successive halving.

    Each trial is a run of its own. The same command again goes on where it was stopped, and trains
    nothing twice. The best settings are in best.yaml of the output directory, for --config.
    """
    from seqtool.core.config import apply_overrides
    from seqtool.training.tuning import BEST, describe, read_file, read_space, read_texts
    from seqtool.training.tuning import tune as search

    if kind not in KINDS:
        raise ConfigError(
            f"nothing that is trained is called {kind!r}", hint=did_you_mean(kind, KINDS)
        )
    tunable = KINDS[kind]
    if kind == "lm" and (dev is not None or len(data or ()) > 1):
        what = "--dev is of treebanks" if dev is not None else "a language model has one DATA"
        hint = "name one prepared corpus, text or folder: its validation part comes with it"
        raise ConfigError(what, hint=hint)
    chosen = {} if time_limit is None else {"training.time_limit": time_limit}
    settings = resolve_length(lambda: tunable.resolve(config, chosen, set_ or []), chosen, set_)
    tried: dict[str, Any] = {} if space is None else dict(read_file(space, type(settings)))
    tried.update(read_texts(try_ or []))
    domains = read_space(tried, type(settings))
    searched = [*domains]
    fixed = apply_overrides(type(settings), {}, set_ or [])
    if both := [name for name in searched if name in fixed]:
        what = f"{both[0]} is tried, and --set gives it one value"
        raise ConfigError(what, hint="leave out one of the two")
    _refuse_unread(settings, domains, fixed, config)
    if list_settings:
        return print_settings(settings)
    from seqtool.core.progress import Display
    from seqtool.text.datasets import sample_treebank

    note_shared(data or (), dev)
    options: dict[str, Any] = {"device": device, "threads": threads, "command": typed()}
    if kind != "lm":
        options["dev"] = dev if data or dev else sample_treebank("en", "valid")
    with Display() as display:
        tuned = search(
            tunable.train,
            _data(kind, data),
            settings,
            tried,
            output=output,
            trials=trials,
            rounds=rounds,
            factor=factor,
            seed=seed,
            score=score or tunable.score,
            force=force,
            on_event=display.show,
            on_outcome=lambda outcome: display.note(_line(outcome)),
            **options,
        )
    ranking = tuned.ranking()
    if json:
        return emit({"best": tuned.best, "config": output / BEST, "trials": ranking})
    names = list(tuned.best.settings)
    show_table(
        "",
        ["trial", "round", tuned.score, *(name.rpartition(".")[2] for name in names), "seconds"],
        [
            [
                *(outcome.trial, outcome.round, _score(outcome)),
                *(outcome.settings[name] for name in names),
                f"{outcome.seconds:.0f}",
            ]
            for outcome in ranking
        ],
    )
    note(f"best: trial {tuned.best.trial}, {describe(tuned.best.settings)}")
    given = [*map(str, data or ()), *(("--dev", str(dev)) if dev else ())]
    again = shlex.join([f"train-{kind}", *given, "--config", str(output / BEST)])
    note(f"next: seqtool {again}")


def _refuse_unread(settings: Any, space: Space, fixed: Iterable[str], file: str | None) -> None:
    """Refuse a setting that is tried or typed, and that counts in no trial.

    Raises:
        ConfigError: there is one.
    """
    from seqtool.core.config import load_yaml, named_settings, refuse_unread
    from seqtool.training.tuning import draw_trials, with_values

    configs = []
    for trial in draw_trials(space, LOOKED_AT, seed=0) if space else ():
        with suppress(ConfigError):  # the search tells which trial cannot be
            configs.append(with_values(settings, trial))
    named: dict[str, str | None] = {}
    if file is not None and Path(file).is_file():
        named = dict.fromkeys(named_settings(type(settings), load_yaml(file)), file)
    for name, path in (named | dict.fromkeys([*space, *fixed])).items():
        refuse_unread([(config, name) for config in configs or [settings]], (), path=path)


def _data(kind: str, data: list[Path] | None) -> Any:
    """Return what is trained on: the sample if nothing is given. It is read again by each trial."""
    if not data:
        from seqtool.text.datasets import sample_text, sample_treebank

        note("no DATA given: searching on the shipped English sample")
        return sample_text("en", "train").parent if kind == "lm" else sample_treebank("en", "train")
    if Path("-") in data:
        what, hint = "stdin can be read once, and a search reads its text often", "name a file"
        raise ConfigError(what, hint=hint)
    return data[0] if kind == "lm" else data


def _score(outcome: Outcome) -> str:
    return "failed" if outcome.score is None else f"{outcome.score:.2f}"


def _line(outcome: Outcome) -> str:
    """Return an outcome as a line."""
    from seqtool.training.tuning import describe

    problem = f" ({outcome.problem})" if outcome.problem else ""
    return f"trial {outcome.trial}: {_score(outcome)}{problem}  {describe(outcome.settings)}"
