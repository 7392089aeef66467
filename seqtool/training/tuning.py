"""Search for settings: random search and successive halving, over any training of the package.

A search is a directory:

    tune.json     what is searched, and the outcome of every training so far
    best.yaml     the settings of the best trial, as --config reads them
    trials/       a run directory for each training: 003-1 is trial 3 in round 1

The first trial has the settings as they are, if they belong to what is searched. Each setting of
the others is drawn independently (Bergstra & Bengio 2012), but evenly: eight draws in a row have
each an eighth of its values (a Latin hypercube, McKay, Beckman & Conover 1979). With several
rounds, trials get a share of the time or of the epochs first, and the best of a round get `factor`
times as much in the next one (successive halving, Jamieson & Talwalkar 2016), trained anew.
"""

from __future__ import annotations

import math
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.config import Config, from_dict, lay_over, set_value, to_dict
from seqtool.core.errors import (
    ConfigError,
    DataError,
    Interrupted,
    OutputError,
    TrainingError,
    counted,
)
from seqtool.core.one_line import OneLine
from seqtool.core.progress import EpochDone, Event
from seqtool.training.config import seconds_of
from seqtool.training.run import TrainedModel

RECORD, BEST, RUNS = "tune.json", "best.yaml", "trials"
DIGITS = 3  # of a number that is drawn
BLOCK = 8  # trials among which the values of each setting are spread evenly
BELOW_ONE = math.nextafter(1.0, 0.0)
TRIES = 100  # draws for each trial, as a space may have fewer members than are asked for
MACHINE = ("device", "threads", "command", "should_stop")  # options that may change in a search

_NUMBER = r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(:log)?")
_HOW = "write values a,b,c, a range low..high, or low..high:log, which begins above 0"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones if both ends are whole.

    Each is as likely, or their logarithms are.
    """

    low: float
    high: float
    is_log: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __contains__(self, value: object) -> bool:
        kind = int if self.is_whole else (int, float)
        return isinstance(value, kind) and self.low <= value <= self.high


Domain = tuple[Any, ...] | Range  # values of which each is as likely, or numbers
Space = Mapping[str, Domain]  # by dotted settings


def draw(domain: Domain, chance: float) -> Any:
    """Return a value of a domain, by a number from 0 to 1 (not 1 itself)."""
    if isinstance(domain, tuple):
        return domain[int(chance * len(domain))]
    low, high = domain.low, domain.high
    # one more: rounded down, the last whole number is then as likely as the others
    end = high + 1 if domain.is_whole else high
    value = low * (end / low) ** chance if domain.is_log else low + (end - low) * chance
    value = math.floor(value) if domain.is_whole else float(f"{value:.{DIGITS}g}")
    return min(max(value, low), high)  # rounding must not lead out of the range


def read_domain(name: str, given: Any) -> Domain:
    """Return the domain of a setting: a list of values, or a text as `--try` takes it.

    Raises:
        ConfigError: it is neither, or a range that has no numbers.
    """
    from seqtool.core.strict_yaml import read_yaml

    wrong = ConfigError(f"{name} has no values to try: {given!r:.60}", hint=_HOW)
    if isinstance(given, str) and (ends := _RANGE.fullmatch(given.strip())):
        low, high = (
            int(end) if end.lstrip("+-").isdecimal() else float(end) for end in ends.groups()[:2]
        )
        is_log = ends.group(3) is not None
        if not low < high < math.inf or (is_log and low <= 0):
            raise wrong
        return Range(low, high, is_log)
    if isinstance(given, str):
        try:
            given = read_yaml(f"[{given}]")
        except ConfigError as error:
            raise wrong from error
    if not isinstance(given, list | tuple) or not given:
        raise wrong
    return tuple(given)


def read_space(given: Mapping[str, Any], kind: type[Config]) -> dict[str, Domain]:
    """Return a space over settings of `kind`, by their dotted names.

    Raises:
        ConfigError: an unknown setting, one that is named twice, or nothing to try.
    """
    space: dict[str, Domain] = {}
    for name, values in given.items():
        dotted = set_value(kind, {}, name, None)
        if dotted in space:
            raise ConfigError(f"{dotted} is named twice", hint="name it once, with all its values")
        space[dotted] = values if isinstance(values, Range) else read_domain(name, values)
    return space


def with_values(config: Config, values: Mapping[str, Any], share: float = 1.0) -> Any:
    """Return settings with other values of some, by their dotted names.

    Args:
        config: all settings.
        values: those that are laid over them.
        share: of the time, or of the epochs.

    Raises:
        ConfigError: they contradict one another.
    """
    kind, stored = type(config), to_dict(config)
    given: dict[str, Any] = {}
    for name, value in values.items():
        set_value(kind, given, name, value)
    lay_over(kind, stored, given)
    if share < 1.0 and (limit := stored["training"]["time_limit"]) is not None:
        stored["training"]["time_limit"] = round(share * seconds_of(limit), 1)
    elif share < 1.0:
        # of a parser, the small ones are those of a small treebank
        for section, name in (("training", "epochs"), ("learning", "small_epochs")):
            if epochs := stored.get(section, {}).get(name):
                stored[section][name] = max(1, round(share * epochs))
    return from_dict(kind, stored)


def draw_trials(
    space: Space, num_trials: int, seed: int, first: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return trials, no two alike; fewer than asked for if there are not so many.

    The first trials do not depend on how many are asked for.

    Args:
        space: what they are drawn from.
        num_trials: how many.
        seed: of the draws.
        first: a member of the space that is the first trial.
    """
    trials: list[dict[str, Any]] = [] if first is None else [dict(first)]
    chances = _even_chances(len(space), seed)
    for _ in range(TRIES * num_trials):
        if len(trials) >= num_trials:
            break
        drawn = zip(space.items(), next(chances), strict=True)
        trial = {name: draw(domain, chance) for (name, domain), chance in drawn}
        if trial not in trials:
            trials.append(trial)
    return trials


def _even_chances(num: int, seed: int) -> Iterator[list[float]]:
    """Give `num` numbers from 0 to 1 (not 1 itself), `BLOCK` of each in a row spread evenly."""
    generator = random.Random(seed)
    while True:
        columns = []
        for _ in range(num):
            parts = generator.sample(range(BLOCK), BLOCK)
            # rounding must not lead to 1
            columns.append([min((part + generator.random()) / BLOCK, BELOW_ONE) for part in parts])
        yield from map(list, zip(*columns, strict=True))


@dataclass(frozen=True)
class Outcome:
    """What came of one training of a search.

    Attributes:
        trial: its number, from 1.
        round: in which it was, from 1.
        settings: those that were drawn, dotted.
        score: of the validation part; None where training failed.
        seconds: of training.
        epochs: completed.
        parameters: trained numbers.
        problem: why it failed.
    """

    trial: int
    round: int
    settings: Mapping[str, Any]
    score: float | None
    seconds: float = 0.0
    epochs: int = 0
    parameters: int = 0
    problem: str = ""


def ordered(outcomes: Iterable[Outcome], score: str) -> list[Outcome]:
    """Return outcomes by a score, the best first; those that failed last; of equals the earlier.

    More is better of all scores but a perplexity and a time.
    """
    sign = 1.0 if score.endswith(("perplexity", "seconds")) else -1.0

    def key(outcome: Outcome) -> tuple[float, int]:
        return (math.inf if outcome.score is None else sign * outcome.score, outcome.trial)

    return sorted(outcomes, key=key)


@dataclass(frozen=True)
class Tuned(OneLine):
    """What `tune` returns.

    Attributes:
        path: the directory of the search.
        score: the name of the score that counts.
        best: the best outcome of the last round.
        config: its settings, all of them; they stand in `best.yaml` too.
        outcomes: of every training, in the order in which they were made.
    """

    shown = ("path", "score", "best.score", "best.settings")

    path: Path
    score: str
    best: Outcome
    config: Any
    outcomes: tuple[Outcome, ...]

    def ranking(self) -> list[Outcome]:
        """Return the last outcome of each trial: by round, the last one first, the best first."""
        last = {outcome.trial: outcome for outcome in self.outcomes}
        return sorted(ordered(last.values(), self.score), key=lambda outcome: -outcome.round)


@runtime.writes_to("output")
def tune(
    train: Callable[..., TrainedModel],
    data: Any,
    config: Config,
    space: Mapping[str, Any],
    *,
    output: str | Path = "runs/tune",
    trials: int = 16,
    rounds: int = 1,
    factor: float = 3.0,
    seed: int = 1,
    score: str = "valid_perplexity",
    force: bool = False,
    on_event: Callable[[Event, str], None] = lambda event, name: None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    **options: Any,
) -> Tuned:
    """Search for the settings with which a training has the best score.

    Called again with the same arguments, it goes on where it was stopped, within a training too;
    what was trained is not trained again. More `trials` add to a search.

    Args:
        train: `train_lm`, `train_parser`, `train_tagger` or `train_segmenter`.
        data: what it trains on, its first argument.
        config: all settings; those of the space are laid over them.
        space: what is searched: setting -> a list of values, or a text such as `1e-4..1e-2:log` or
            `100..400`.
        output: the directory of the search.
        trials: how many there are; fewer if the space has not so many. The first one is `config` as
            it is, if the space has it.
        rounds: of successive halving; with one, every trial has the whole time, or all epochs.
        factor: how much more of these a trial gets in the next round, and of how many one gets so
            far.
        seed: of the draws; that of the trainings is a setting.
        score: which of a model's scores counts.
        force: replace the search that is there.
        on_event: called with every event of a training, and the name of the trial.
        on_outcome: called with the outcome of every training.
        options: others that `train` takes, such as `dev` and `threads`.

    Raises:
        Interrupted: a training was stopped; its state, and what was trained before, are saved.
        ConfigError: the space names what is no setting, or has a trial with impossible settings.
        OutputError: `output` has another search, or is none.
        TrainingError: every trial of a round failed.
    """
    domains = read_space(space, type(config))
    _check(config, domains, trials, rounds, factor)
    search = _Search(Path(output), train, data, config, domains, options, score, on_event)
    search.open({"rounds": rounds, "factor": factor, "seed": seed, "score": score}, force=force)
    # fewer trials than before change nothing
    search.draw(max([trials, *(one.trial for one in search.outcomes)]), seed)
    if force:
        shutil.rmtree(search.output / RUNS, ignore_errors=True)
    search.write()
    numbers: Sequence[int] = range(1, 1 + len(search.trials))
    for round_ in range(1, 1 + rounds):
        for number in numbers:
            if not search.of(round_, [number]):
                on_outcome(search.train_one(number, round_, factor ** (round_ - rounds)))
        done = search.of(round_, numbers)
        if done[0].score is None:
            what = f"{counted(len(done), 'trial')} failed, the first: {done[0].problem}"
            raise TrainingError(what, hint="try smaller learning rates, with --force")
        num_kept = max(1, int(len(numbers) / factor + 1e-9))  # 9 / 3.0 is 3
        numbers = sorted(one.trial for one in done[:num_kept])
    return search.result(rounds)


def _check(config: Any, space: Space, trials: int, rounds: int, factor: float) -> None:
    """Refuse a search that cannot be."""
    if not space:
        raise ConfigError("nothing is to be tried", hint=f"give --try key=VALUES: {_HOW}")
    if min(trials, rounds) < 1 or not 1.0 < factor < math.inf:
        what = f"trials is {trials}, rounds is {rounds} and factor is {factor:g}"
        raise ConfigError(what, hint="give 1 or more of the first two, and a factor above 1")
    if not hasattr(config, "training"):
        hint = "search over a neural language model, a parser, a tagger or a segmenter"
        raise ConfigError(f"{type(config).__name__} cannot be searched for", hint=hint)
    limits = {"training.epochs", "training.time_limit"} if rounds > 1 else {"training.epochs"}
    is_limited = rounds > 1 or config.training.time_limit is not None
    if is_limited and (tried := limits & space.keys()):
        what = f"{tried.pop()} is tried, but rounds or a limit of time say how long is trained"
        raise ConfigError(what, hint="leave out one of the two")


@dataclass
class _Search:
    """A search, with arguments of `tune`."""

    output: Path
    train: Callable[..., TrainedModel]
    data: Any
    config: Config
    space: Space
    options: Mapping[str, Any]
    score: str
    on_event: Callable[[Event, str], None]
    trials: Sequence[Mapping[str, Any]] = ()
    outcomes: list[Outcome] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)  # what is the same when it goes on

    def draw(self, num_trials: int, seed: int) -> None:
        """Draw the trials, and build the settings of all, so that a mistake is found at once."""
        stored = to_dict(self.config)
        now = {
            name: reduce(lambda section, key: section[key], name.split("."), stored)
            for name in self.space
        }
        is_member = all(now[name] in domain for name, domain in self.space.items())
        self.trials = draw_trials(self.space, num_trials, seed, now if is_member else None)
        for number in range(1, 1 + len(self.trials)):
            self.settings(number)

    def settings(self, number: int, share: float = 1.0) -> Any:
        """Return all settings of a trial, with a share of the time or epochs."""
        values = self.trials[number - 1]
        try:
            config = with_values(self.config, values, share)
        except ConfigError as error:
            what = f"trial {number} ({describe(values)}) cannot be: {error.message}"
            raise ConfigError(what, hint=error.hint) from error
        if hasattr(config, "description"):
            config = replace(config, description=f"trial {number} of a search for settings")
        return config

    def of(self, round_: int, numbers: Sequence[int]) -> list[Outcome]:
        """Return the outcomes of some trials in a round, the best first."""
        of_round = (one for one in self.outcomes if one.round == round_ and one.trial in numbers)
        return ordered(of_round, self.score)

    def open(self, plan: Mapping[str, Any], *, force: bool) -> None:
        """Read what was trained, if the directory holds this search.

        Raises:
            OutputError: it holds something else.
        """
        options = {name: str(value) for name, value in self.options.items() if value is not None}
        files = self.data if isinstance(self.data, list | tuple) else [self.data]
        self.about = {
            "train": self.train.__name__,
            "data": [str(Path(file).resolve()) for file in files],
            "sums": _sums(map(Path, (*files, *options.values()))),
            "options": {name: value for name, value in options.items() if name not in MACHINE},
            "config": to_dict(self.config),
            "space": {name: repr(domain) for name, domain in self.space.items()},
            **plan,
        }
        path, hint = self.output / RECORD, "give --force to begin anew, or another -o"
        if not path.is_file() and self.output.exists():
            if not self.output.is_dir() or any(self.output.iterdir()):
                hint = "choose another directory with -o"
                raise OutputError("exists and is no search", hint=hint, path=self.output)
        elif not force and any(self.output.glob(f"{RUNS}/*/{checkpoint.RUN}")):
            try:
                record = storage.read_object(path)
                about, self.outcomes = record["about"], [Outcome(**o) for o in record["outcomes"]]
            except (ValueError, KeyError, TypeError) as error:
                raise OutputError("the search's record is damaged", hint=hint, path=path) from error
            if storage.to_json(about) != storage.to_json(self.about):
                what = "holds another search, or one over data that have changed since it began"
                raise OutputError(what, hint=f"give the same settings, or {hint}", path=self.output)

    def train_one(self, number: int, round_: int, share: float) -> Outcome:
        """Train one trial, or go on with it."""
        folder, values = self.output / RUNS / f"{number:03}-{round_}", self.trials[number - 1]
        name = f"trial {number}, round {round_}"

        def on_event(event: Event) -> None:
            if isinstance(event, EpochDone):  # a mistake is found before a training is over
                self.check_score((*event.scores, "train_seconds", f"{event.items}_per_second"))
            self.on_event(event, name)

        is_begun = checkpoint.run_record(folder).is_file()
        try:
            trained = self.train(
                None if is_begun else self.data,
                folder,
                self.settings(number, share),
                resume=is_begun,
                force=not is_begun,
                on_event=on_event,
                **self.options,
            )
        except Interrupted as error:
            what = f"the search was interrupted in {name}; all that was trained is saved"
            raise Interrupted(what, hint="give the same command again: it goes on") from error
        except (TrainingError, ConfigError, DataError) as error:
            # what no trial could be trained with ends the search
            is_first = all(one.score is None for one in self.outcomes)
            if is_first and not isinstance(error, TrainingError):
                raise
            outcome = Outcome(number, round_, values, None, problem=error.message)
        else:
            self.check_score(trained.scores)
            score, size = trained.scores[self.score], trained.num_parameters
            outcome = Outcome(number, round_, values, score, trained.seconds, trained.epochs, size)
        self.outcomes.append(outcome)
        self.write()
        return outcome

    def check_score(self, known: Iterable[str]) -> None:
        """Refuse a score that models do not have."""
        if self.score not in (names := tuple(known)):
            hint = f"choose one of: {', '.join(names)}"
            raise ConfigError(f"models have no score {self.score!r}", hint=hint)

    def write(self) -> None:
        """Write the record."""
        self.output.mkdir(parents=True, exist_ok=True)
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        content = {"format_version": 1, "about": self.about, "outcomes": outcomes}
        storage.write_json(self.output / RECORD, content)

    def result(self, round_: int) -> Tuned:
        """Write the settings of the best trial of a round, and return it with all outcomes."""
        import yaml

        # also of trials that others, added later, keep out of the last round
        best = self.of(round_, range(1, 1 + len(self.trials)))[0]
        config = self.settings(best.trial)
        about = f"# {self.score} {best.score:.2f}: trial {best.trial} of {len(self.trials)}\n"
        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        storage.replace_text(self.output / BEST, about + text)
        return Tuned(self.output, self.score, best, config, tuple(self.outcomes))


def _sums(paths: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files, and of those in directories, by their paths."""
    nested = (sorted(path.rglob("[!.]*")) if path.is_dir() else [path] for path in paths)
    files = [file for group in nested for file in group if file.is_file()]
    return {str(file.resolve()): storage.sum_of(file) for file in files}


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings as --set takes them, by the last parts of their names."""
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())
