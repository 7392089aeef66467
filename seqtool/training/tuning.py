"""Search for settings: random search and successive halving, over any training of the package.

A search is a directory:

    tune.json     what is searched, and the outcome of every training so far
    trials.csv    the outcomes as a table
    best.yaml     the settings of the best trial, as --config reads them
    trials/       a run directory for each training: 003-1 is trial 3 in round 1

The first trial has the settings as they are, if they belong to what is searched, so that the table
tells what the search brought. Each setting of the others is drawn by itself (Bergstra & Bengio
2012), but evenly: eight draws in a row have each an eighth of its values (a Latin hypercube,
McKay, Beckman & Conover 1979). With several rounds, trials get a share of the time or of the epochs
first, and the best of a round get `factor` times as much in the next one (successive halving,
Jamieson & Talwalkar 2016). They are trained anew there, since a schedule that has come to its end
leaves nothing to go on from.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.config import Config, from_dict, lay_over, load_yaml, set_value, to_dict
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
from seqtool.core.reading import CORPUS, is_corpus
from seqtool.training.config import seconds_of
from seqtool.training.run import TrainedModel

RECORD, TABLE, BEST, RUNS = "tune.json", "trials.csv", "best.yaml", "trials"
DIGITS = 3  # of a number that is drawn: more tell no two trials apart
BLOCK = 8  # trials among which the values of each setting are spread evenly
BELOW_ONE = math.nextafter(1.0, 0.0)
TRIES = 100  # draws for each trial, as a space may have fewer members than are asked for

_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log|linear))?")
_HOW = "write key=a,b,c, key=low..high or key=low..high:log"


@dataclass(frozen=True)
class Choices:
    """Values of which each is as likely."""

    values: tuple[Any, ...]

    @property
    def size(self) -> float:
        """Return how many values there are."""
        return len(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def draw(self, chance: float) -> Any:
        """Return a value, by a number from 0 to 1 (not 1 itself)."""
        return self.values[int(chance * len(self.values))]


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

    @property
    def size(self) -> float:
        """Return how many numbers there are."""
        return self.high - self.low + 1 if self.is_whole else math.inf

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or (self.is_whole and not isinstance(value, int)):
            return False
        return self.low <= value <= self.high

    def draw(self, chance: float) -> float:
        """Return a number, by a number from 0 to 1 (not 1 itself)."""
        # one more: rounded down, the last whole number is then as likely as the others
        end = self.high + 1 if self.is_whole else self.high
        if self.is_log:
            value = self.low * (end / self.low) ** chance
        else:
            value = self.low + (end - self.low) * chance
        # rounding must not lead out of the range
        value = math.floor(value) if self.is_whole else float(f"{value:.{DIGITS}g}")
        return min(max(value, self.low), self.high)


Domain = Choices | Range
Space = Mapping[str, Domain]  # by dotted settings


def read_domain(name: str, given: Any) -> Domain:
    """Return what a setting may be: a list of values, or a text as `--try` takes it.

    Raises:
        ConfigError: it is neither, or a range that has no numbers.
    """
    if isinstance(given, list | tuple):
        if not given:
            raise ConfigError(f"{name} has no values to try", hint="give one or more")
        return Choices(tuple(given))
    if not isinstance(given, str):
        hint = f"write {name}: [a, b, c], {name}: low..high or {name}: low..high:log"
        raise ConfigError(f"{name} is {given!r:.60}, which is one value", hint=hint)
    if (found := _RANGE.fullmatch(given.strip())) is None:
        from seqtool.core.strict_yaml import read_yaml

        try:
            return read_domain(name, read_yaml(f"[{given}]"))
        except ConfigError as error:
            raise ConfigError(f"{name}={given:.60} is nothing to try", hint=_HOW) from error
    low, high = (
        int(end) if re.fullmatch(r"[+-]?\d+", end) else float(end) for end in found.groups()[:2]
    )
    is_log = found.group(3) == "log"
    if low >= high or not math.isfinite(high - low):
        what = f"{name}={given:.60} has no numbers: it must begin with the lower one"
        raise ConfigError(what, hint=f"write {name}={high:g}..{low:g}, or one value with --set")
    if is_log and low <= 0:
        what = f"{name}={given:.60} has no logarithms: it begins with {low:g}"
        raise ConfigError(what, hint="begin above 0, or leave out :log")
    return Range(low, high, is_log)


def read_texts(texts: Sequence[str]) -> dict[str, str]:
    """Return what `--try` gives: `key=...` texts, by their keys."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or not values.strip():
            raise ConfigError(f"--try {text:.60} says nothing to try", hint=_HOW)
        if name.strip() in given:
            what = f"--try names {name.strip()} twice"
            raise ConfigError(what, hint="give all of its values at once: key=a,b,c")
        given[name.strip()] = values
    return given


def read_file(path: Path, kind: type[Config]) -> dict[str, Domain]:
    """Return the space of a YAML file: a setting of `kind` on each line, dotted.

    Raises:
        ConfigError: with the line of what is wrong.
    """
    if not path.exists():
        raise ConfigError("no such file", hint="check --space", path=path)
    space: dict[str, Domain] = {}
    for name, given in load_yaml(path).items():
        try:
            space |= read_space({name: given}, kind)
        except ConfigError as error:
            lines = path.read_text(encoding="utf-8").splitlines()
            begins = re.compile(rf"['\"]?{re.escape(name)}['\"]?\s*:")
            line = next((i for i, text in enumerate(lines, 1) if begins.match(text)), None)
            raise ConfigError(error.message, hint=error.hint, path=path, line=line) from error
    return space


def read_space(given: Mapping[str, Any], kind: type[Config]) -> dict[str, Domain]:
    """Return a space over settings of `kind`, by their dotted names.

    Raises:
        ConfigError: an unknown setting, one that is named twice, or nothing to try.
    """
    space: dict[str, Domain] = {}
    for name, values in given.items():
        domain = values if isinstance(values, Choices | Range) else read_domain(name, values)
        dotted = set_value(kind, {}, name, None)
        if dotted in space:
            raise ConfigError(f"{dotted} is named twice", hint="name it once, with all its values")
        space[dotted] = domain
    return space


def member(space: Space, config: Config) -> dict[str, Any] | None:
    """Return what the settings say of those that are searched; None if one is not in its domain."""
    found = {}
    for name, domain in space.items():
        value: Any = to_dict(config)
        for part in name.split("."):
            value = value[part]
        if value not in domain:
            return None
        found[name] = value
    return found


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return settings with other values of some, by their dotted names.

    Raises:
        ConfigError: they contradict one another.
    """
    stored = to_dict(config)
    _lay_over(type(config), stored, values)
    return from_dict(type(config), stored)


def _lay_over(kind: type[Any], stored: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay values, by their dotted names, over all settings, in place."""
    given: dict[str, Any] = {}
    for name, value in values.items():
        set_value(kind, given, name, value)
    lay_over(kind, stored, given)


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
    chances = _even_chances(len(space), seed)
    size = math.prod(domain.size for domain in space.values())
    trials: list[dict[str, Any]] = [] if first is None else [dict(first)]
    for _ in range(TRIES * num_trials):
        if len(trials) >= min(num_trials, size):
            break
        drawn = zip(space.items(), next(chances), strict=True)
        trial = {name: domain.draw(chance) for (name, domain), chance in drawn}
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


def larger_is_better(score: str) -> bool:
    """Whether more of a score is better: of all but a perplexity and a time."""
    return not score.endswith(("perplexity", "seconds"))


def ordered(outcomes: Iterable[Outcome], score: str) -> list[Outcome]:
    """Return outcomes by a score, the best first; those that failed last; of equals the earlier."""
    sign = -1.0 if larger_is_better(score) else 1.0

    def key(outcome: Outcome) -> tuple[float, int]:
        return (math.inf if outcome.score is None else sign * outcome.score, outcome.trial)

    return sorted(outcomes, key=key)


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
        on_outcome: called when a training has ended.
        options: others that `train` takes, such as `dev` and `threads`.

    Raises:
        Interrupted: a training was stopped; its state, and what was trained before, are saved.
        ConfigError: the space names what is no setting, or has a trial with impossible settings.
        OutputError: `output` has another search, or is none.
        TrainingError: every trial of a round failed.
    """
    search = _Search(Path(output), train, data, config, read_space(space, type(config)), options)
    search.plan(trials, rounds, factor, seed, score)
    search.open(force=force)
    for outcome in search.run(on_event):
        on_outcome(outcome)
    return search.result()


def _sum_of(path: Path) -> str:
    """Return the SHA-256 of what is searched on: a file, a corpus's record, a directory's files."""
    path = storage.present(path)
    if path.is_file():
        return storage.sum_of(path)
    if is_corpus(path):
        return storage.sum_of(path / CORPUS)
    files = [file for file in sorted(path.glob("[!.]*")) if file.is_file()]
    inside = {file.name: storage.sum_of(file) for file in files}
    return hashlib.sha256(storage.to_json(inside).encode()).hexdigest()


@dataclass(eq=False)
class _Search:
    """A search, with the arguments of `tune`."""

    output: Path
    train: Callable[..., TrainedModel]
    data: Any
    config: Config
    space: Space
    options: Mapping[str, Any]

    def plan(self, trials: int, rounds: int, factor: float, seed: int, score: str) -> None:
        """Draw the trials, and build the settings of all, so that a mistake is told at once."""
        if not self.space:
            raise ConfigError("nothing is to be tried", hint=_HOW.replace("write", "give --try"))
        for name, value, least in (("trials", trials, 1), ("rounds", rounds, 1)):
            if value < least:
                raise ConfigError(f"{name} is {value}", hint=f"give {least} or more")
        if not 1.0 < factor < math.inf:
            raise ConfigError(f"factor is {factor:g}", hint="give more than 1, such as 3")
        budget = {"training.epochs", "training.time_limit"} & self.space.keys()
        if rounds > 1 and budget:
            what = f"{budget.pop()} is tried, but rounds say how long trials are trained"
            raise ConfigError(what, hint="leave it out, or search in 1 round")
        self.rounds, self.factor, self.score = rounds, factor, score
        first = member(self.space, self.config)
        self.draw = partial(draw_trials, self.space, seed=seed, first=first)
        self.trials = self.draw(num_trials=trials)
        self.outcomes: dict[tuple[int, int], Outcome] = {}
        for number in range(1, 1 + len(self.trials)):
            for round_ in range(1, 1 + rounds):
                self.settings_of(number, round_)
        # what is not of the search, and a run that goes on takes as well
        own = ("device", "threads", "command", "should_stop")
        self.machine = {name: self.options[name] for name in own if name in self.options}
        named = {
            name: str(value)
            for name, value in self.options.items()
            if name not in own and value is not None
        }
        files = self.data if isinstance(self.data, list | tuple) else [self.data]
        self.files = [Path(file).resolve() for file in files]
        others = [Path(file).resolve() for file in named.values() if Path(file).is_file()]
        self.about = {
            "train": self.train.__name__,
            "data": [str(file) for file in self.files],
            "sums": {str(file): _sum_of(file) for file in (*self.files, *others)},
            "options": named,
            "config": to_dict(self.config),
            "space": {name: dataclasses.asdict(domain) for name, domain in self.space.items()},
            **{"rounds": rounds, "factor": factor, "seed": seed, "score": score},
            "block": BLOCK,
            "first": first,
        }

    def settings_of(self, number: int, round_: int) -> Any:
        """Return all settings of a trial in a round."""
        kind, values = type(self.config), to_dict(self.config)
        _lay_over(kind, values, self.trials[number - 1])
        if "description" in values:
            values["description"] = f"trial {number} of a search for settings"
        # all in the last round, and in each before it less by the factor
        share = self.factor ** (round_ - self.rounds)
        if "training" not in values:
            what = f"{kind.__name__} cannot be searched for: it has no section of training"
            hint = "search over a neural language model, a parser, a tagger or a segmenter"
            raise ConfigError(what, hint=hint)
        training = values["training"]
        if "training.epochs" in self.space and training["time_limit"] is not None:
            what = "training.epochs is tried, but a limit of time ends the trainings"
            raise ConfigError(what, hint="leave out one of the two")
        if share < 1.0 and training["time_limit"] is not None:
            training["time_limit"] = round(share * seconds_of(training["time_limit"]), 1)
        elif share < 1.0:
            training["epochs"] = max(1, round(share * training["epochs"]))
        # of a parser, these are the epochs where the treebank is small and none are tried
        if small := values.get("learning", {}).get("small_epochs"):
            values["learning"]["small_epochs"] = max(1, round(share * small))
        try:
            return from_dict(kind, values)
        except ConfigError as error:
            drawn = describe(self.trials[number - 1])
            what = f"trial {number} ({drawn}) cannot be: {error.message}"
            raise ConfigError(what, hint=error.hint) from error

    def open(self, *, force: bool) -> None:
        """Read what was trained, if the directory holds this search.

        Raises:
            OutputError: it holds something else.
        """
        path = self.output / RECORD
        if path.is_file() and not force:
            try:
                kept = storage.read_object(path)
                kept = storage.unseal(kept)
                about, found = kept["about"], [Outcome(**each) for each in kept["outcomes"]]
            except (ValueError, KeyError, TypeError) as error:
                hint = "begin anew with --force"
                raise OutputError("the search's record is damaged", hint=hint, path=path) from error
            # of tuples, JSON makes lists; where no training has begun, nothing is lost
            own = json.loads(storage.to_json(self.about))
            if about != own and any((self.output / RUNS).glob(f"*/{checkpoint.RUN}")):
                what = "holds another search"
                hint = "give the same settings again, --force to begin anew, or another -o"
                if about == {**own, "sums": about.get("sums")}:
                    what = "holds a search over other data: files have changed since it began"
                    hint = "begin anew with --force, or give another -o"
                raise OutputError(what, hint=hint, path=self.output)
            self.outcomes = {(outcome.trial, outcome.round): outcome for outcome in found}
            # fewer trials than before change nothing
            most = max([len(self.trials), *(outcome.trial for outcome in found)])
            self.trials = self.draw(num_trials=most)
        elif path.is_file():
            shutil.rmtree(self.output / RUNS, ignore_errors=True)
            for name in (BEST, TABLE, RECORD):
                (self.output / name).unlink(missing_ok=True)
        elif self.output.exists() and (not self.output.is_dir() or any(self.output.iterdir())):
            hint = "choose another directory with -o"
            raise OutputError("exists and is no search", hint=hint, path=self.output)
        self.output.mkdir(parents=True, exist_ok=True)
        self.write()

    def run(self, on_event: Callable[[Event, str], None]) -> Iterator[Outcome]:
        """Train what is not trained yet, round by round, giving each new outcome."""
        numbers = list(range(1, 1 + len(self.trials)))
        for round_ in range(1, 1 + self.rounds):
            for number in numbers:
                if (number, round_) not in self.outcomes:
                    outcome = self.outcome_of(number, round_, on_event)
                    self.outcomes[number, round_] = outcome
                    self.write()
                    yield outcome
            done = [self.outcomes[number, round_] for number in numbers]
            self.check_round(done)
            num_kept = max(1, int(len(numbers) / self.factor + 1e-9))  # 9 / 3.0 is 3
            numbers = sorted(outcome.trial for outcome in ordered(done, self.score)[:num_kept])

    def outcome_of(
        self, number: int, round_: int, on_event: Callable[[Event, str], None]
    ) -> Outcome:
        """Train one trial, or go on with it."""
        folder, name = self.output / RUNS / f"{number:03}-{round_}", f"trial {number}"
        if self.rounds > 1:
            name += f", round {round_}"
        settings = self.trials[number - 1]

        def tell(event: Event) -> None:
            if isinstance(event, EpochDone):  # a mistake is told before a whole training is over
                seconds = ("train_seconds", f"{event.items}_per_second")
                self.check_score((*event.scores, *seconds))
            on_event(event, name)

        is_begun = checkpoint.run_record(folder).is_file()
        try:
            trained = self.train(
                None if is_begun else self.data,
                folder,
                self.settings_of(number, round_),
                resume=is_begun,
                force=not is_begun,
                on_event=tell,
                **(self.machine if is_begun else self.options),
            )
        except Interrupted as error:
            what = f"the search was interrupted in {name}; all that was trained is saved"
            raise Interrupted(what, hint="give the same command again: it goes on") from error
        except (TrainingError, ConfigError, DataError) as error:
            # what no trial could be trained with is told at once
            is_own = any(one.score is not None for one in self.outcomes.values())
            is_own = is_own and all(file.exists() for file in self.files)
            if not is_own and not isinstance(error, TrainingError):
                raise
            return Outcome(number, round_, settings, None, problem=error.message)
        self.check_score(trained.scores)
        return Outcome(
            number,
            round_,
            settings,
            trained.scores[self.score],
            trained.seconds,
            trained.epochs,
            trained.num_parameters,
        )

    def check_score(self, known: Iterable[str]) -> None:
        """Refuse a score that models do not have."""
        if self.score not in (names := tuple(known)):
            hint = f"choose one of: {', '.join(names)}"
            raise ConfigError(f"models have no score {self.score!r}", hint=hint)

    def check_round(self, outcomes: Sequence[Outcome]) -> None:
        """Stop if nothing of a round can go on."""
        if all(outcome.score is None for outcome in outcomes):
            what = f"{counted(len(outcomes), 'trial')} failed, the first: {outcomes[0].problem}"
            raise TrainingError(what, hint="try smaller learning rates, with --force")

    def write(self) -> None:
        """Write the record and its table."""
        outcomes = list(self.outcomes.values())
        content = {
            "format_version": 1,
            "about": self.about,
            "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes],
        }
        storage.write_json(self.output / RECORD, storage.sealed(content))
        columns = [field.name for field in dataclasses.fields(Outcome)]
        columns.remove("settings")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*columns, *self.space])
        for outcome in outcomes:
            drawn = (outcome.settings[name] for name in self.space)
            writer.writerow([*(getattr(outcome, name) for name in columns), *drawn])
        storage.replace_text(self.output / TABLE, text.getvalue())

    def result(self) -> Tuned:
        """Write the settings of the best trial, and return it with all outcomes."""
        # also of trials that others, added later, keep out of the last round
        whole = [one for one in self.outcomes.values() if one.round == self.rounds]
        best = ordered(whole, self.score)[0]
        config = self.settings_of(best.trial, self.rounds)
        import yaml

        about = f"# {self.score} {best.score:.2f}: trial {best.trial} of {len(self.trials)}\n"
        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        storage.replace_text(self.output / BEST, about + text)
        return Tuned(self.output, self.score, best, config, tuple(self.outcomes.values()))


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings as --set takes them, by the last parts of their names."""
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())
