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
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, runtime, storage
from seqtool.core.config import Config, from_dict, lay_over, set_value, to_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, OutputError, TrainingError
from seqtool.core.one_line import OneLine
from seqtool.core.progress import EpochDone, Event
from seqtool.training.config import seconds_of
from seqtool.training.run import TrainedModel

RECORD, BEST, RUNS = "tune.json", "best.yaml", "trials"
DIGITS = 3  # of a number that is drawn
BLOCK = 8  # trials among which the values of each setting are spread evenly
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


def read_space(given: Mapping[str, Any], kind: type[Config]) -> dict[str, Domain]:
    """Return a space over settings of `kind`, by their dotted names.

    Args:
        given: setting -> a `Range`, a list of values, or a text as `1,2,3` or `1e-4..1e-2:log`.
        kind: of the settings.

    Raises:
        ConfigError: an unknown setting, one that is named twice, or nothing to try.
    """
    from seqtool.core.strict_yaml import read_yaml

    space: dict[str, Domain] = {}
    for name, values in given.items():
        dotted = set_value(kind, {}, name, None)
        if dotted in space:
            raise ConfigError(f"{dotted} is named twice", hint="name it once, with all its values")
        wrong = ConfigError(f"{name} has no values to try: {values!r:.60}", hint=_HOW)
        if isinstance(values, str) and (ends := _RANGE.fullmatch(values.strip())):
            low, high = (
                int(x) if x.lstrip("+-").isdecimal() else float(x) for x in ends.group(1, 2)
            )
            values = Range(low, high, ends[3] is not None)
            if not low < high < math.inf or (values.is_log and low <= 0):
                raise wrong
        elif isinstance(values, str):
            try:
                values = read_yaml(f"[{values}]")
            except ConfigError as error:
                raise wrong from error
        if not isinstance(values, list | tuple | Range) or values in ([], ()):
            raise wrong
        space[dotted] = values if isinstance(values, Range) else tuple(values)
    return space


def draw_trials(
    space: Space, num_trials: int, seed: int, config: Config | None = None
) -> list[dict[str, Any]]:
    """Return trials, no two alike; fewer than asked for if there are not so many.

    The first trials do not depend on how many are asked for. The very first is `config` if it is
    given and the space has it.
    """
    trials: list[dict[str, Any]] = []
    if config is not None:
        stored = to_dict(config)
        now = {name: reduce(lambda part, key: part[key], name.split("."), stored) for name in space}
        if all(now[name] in domain for name, domain in space.items()):
            trials.append(now)
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
    generator, below_one = random.Random(seed), math.nextafter(1.0, 0.0)
    while True:
        columns = []
        for _ in range(num):
            parts = generator.sample(range(BLOCK), BLOCK)
            # rounding must not lead to 1
            columns.append([min((part + generator.random()) / BLOCK, below_one) for part in parts])
        yield from map(list, zip(*columns, strict=True))


def with_values(config: Config, values: Mapping[str, Any], share: float = 1.0) -> Any:
    """Return settings with other values of some, and a share of the time or of the epochs.

    Raises:
        ConfigError: they contradict one another.
    """
    kind, stored = type(config), to_dict(config)
    changes: dict[str, Any] = {}
    for name, value in values.items():
        set_value(kind, changes, name, value)
    lay_over(kind, stored, changes)
    if share < 1.0 and (limit := stored["training"]["time_limit"]) is not None:
        stored["training"]["time_limit"] = round(share * seconds_of(limit), 1)
    elif share < 1.0:
        # of a parser, the small ones are those of a small treebank
        for section, name in (("training", "epochs"), ("learning", "small_epochs")):
            if epochs := stored.get(section, {}).get(name):
                stored[section][name] = max(1, round(share * epochs))
    try:
        return from_dict(kind, stored)
    except ConfigError as error:
        what = f"no training can have {describe(values)}: {error.message}"
        raise ConfigError(what, hint=error.hint) from error


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings as --set takes them, by the last parts of their names."""
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())


@dataclass(frozen=True)
class Outcome:
    """What came of one training of a search."""

    trial: int  # its number, from 1
    round: int  # in which it was, from 1
    settings: Mapping[str, Any]  # those that were drawn, dotted
    score: float | None  # of the validation part; None where training failed
    seconds: float = 0.0  # of training
    epochs: int = 0  # completed
    parameters: int = 0  # trained numbers
    problem: str = ""  # why it failed


def ordered(outcomes: Iterable[Outcome], score: str) -> list[Outcome]:
    """Return outcomes by a score, the best first; those that failed last; of equals the earlier.

    More is better of all scores but a perplexity and a time.
    """
    sign = 1.0 if score.endswith(("perplexity", "seconds")) else -1.0
    return sorted(
        outcomes, key=lambda one: (one.score is None, sign * (one.score or 0.0), one.trial)
    )


@dataclass(frozen=True)
class Tuned(OneLine):
    """What `tune` returns."""

    shown = ("path", "score", "best.score", "best.settings")

    path: Path  # the directory of the search
    score: str  # the name of the score that counts
    best: Outcome  # of the last round
    config: Any  # its settings, all of them; they stand in `best.yaml` too
    outcomes: tuple[Outcome, ...]  # of every training, in the order in which they were made

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
        space: what is searched, as `read_space` takes it.
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
    import yaml

    output, domains = Path(output), read_space(space, type(config))
    if not domains:
        raise ConfigError("nothing is to be tried", hint=f"give --try key=VALUES: {_HOW}")
    if min(trials, rounds) < 1 or factor <= 1.0:
        what = f"trials is {trials}, rounds is {rounds} and factor is {factor:g}"
        raise ConfigError(what, hint="give 1 or more of the first two, and a factor above 1")
    stored = to_dict(config)
    if "training.epochs" in domains and stored["training"]["time_limit"] is not None:
        what = "training.epochs is tried, but a time limit takes the place of epochs"
        raise ConfigError(what, hint="set training.time_limit to null, or try something else")
    drawn = draw_trials(domains, trials, seed, config)
    for values in drawn:  # a mistake is found before anything is trained
        with_values(config, values)
    files = data if isinstance(data, list | tuple) else [data]
    about = {
        "train": train.__name__,
        "data": [str(Path(file).resolve()) for file in files],
        "options": {name: str(x) for name, x in options.items() if name not in MACHINE},
        "config": stored,
        "space": {name: repr(domain) for name, domain in domains.items()},
        "plan": {"rounds": rounds, "factor": factor, "seed": seed, "score": score},
    }
    outcomes = _open(output, about, force=force)
    _write(output, about, outcomes)

    def run(number: int, round_: int) -> Outcome:
        """Train one trial, or go on with it."""
        name, values = f"trial {number}, round {round_}", drawn[number - 1]

        def listen(event: Event) -> None:
            if isinstance(event, EpochDone):  # a mistake is found before a training is over
                names = (*event.scores, "train_seconds", f"{event.items}_per_second")
                if score not in names:
                    hint = f"choose one of: {', '.join(names)}"
                    raise ConfigError(f"models have no score {score!r}", hint=hint)
            on_event(event, name)

        folder = output / RUNS / f"{number:03}-{round_}"
        is_begun = checkpoint.run_record(folder).is_file()
        how = {"resume": is_begun, "force": not is_begun, "on_event": listen, **options}
        settings = with_values(config, values, factor ** (round_ - rounds))
        try:
            model = train(None if is_begun else data, folder, settings, **how)
        except Interrupted as error:
            what = f"the search was interrupted in {name}; all that was trained is saved"
            raise Interrupted(what, hint="give the same command again: it goes on") from error
        except (TrainingError, ConfigError, DataError) as error:
            # what no trial could be trained with ends the search
            is_first = all(one.score is None for one in outcomes)
            if is_first and not isinstance(error, TrainingError):
                raise
            return Outcome(number, round_, values, None, problem=error.message)
        size, value = model.num_parameters, model.scores[score]
        return Outcome(number, round_, values, value, model.seconds, model.epochs, size)

    numbers: Sequence[int] = range(1, 1 + len(drawn))
    for round_ in range(1, 1 + rounds):
        done = {one.trial for one in outcomes if one.round == round_}
        for number in sorted({*numbers} - done):
            outcomes.append(run(number, round_))
            _write(output, about, outcomes)
            on_outcome(outcomes[-1])
        ranked = ordered((o for o in outcomes if o.round == round_ and o.trial in numbers), score)
        if ranked[0].score is None:
            what = f"every trial of round {round_} failed, the first: {ranked[0].problem}"
            raise TrainingError(what, hint="try smaller learning rates, with --force")
        num_kept = max(1, int(len(numbers) / factor + 1e-9))  # 9 / 3.0 is 3
        numbers = sorted(one.trial for one in ranked[:num_kept])
    # also of trials that others, added later, keep out of the last round
    best = ordered((one for one in outcomes if one.round == rounds), score)[0]
    settings = with_values(config, best.settings)
    title = f"# {score} {best.score:.2f}: trial {best.trial} of {len(drawn)}\n"
    text = yaml.safe_dump(to_dict(settings), sort_keys=False, allow_unicode=True)
    storage.replace_text(output / BEST, title + text)
    return Tuned(output, score, best, settings, tuple(outcomes))


def _open(output: Path, about: Mapping[str, Any], *, force: bool) -> list[Outcome]:
    """Return what was trained, if the directory holds this search; an OutputError if another."""
    path, hint = output / RECORD, "give --force to begin anew, or another -o"
    if not path.is_file() and output.exists() and (output.is_file() or any(output.iterdir())):
        hint = "choose another directory with -o"
        raise OutputError("exists and is no search", hint=hint, path=output)
    if force:
        shutil.rmtree(output / RUNS, ignore_errors=True)
    if not any(output.glob(f"{RUNS}/*/{checkpoint.RUN}")):
        return []
    try:
        record = storage.read_object(path)
        outcomes = [Outcome(**outcome) for outcome in record["outcomes"]]
        is_same = storage.to_json(record["about"]) == storage.to_json(about)
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError("the search's record is damaged", hint=hint, path=path) from error
    if not is_same:
        raise OutputError("holds another search", hint=hint, path=output)
    return outcomes


def _write(output: Path, about: Mapping[str, Any], outcomes: Iterable[Outcome]) -> None:
    """Write the record."""
    output.mkdir(parents=True, exist_ok=True)
    content = {"format_version": 1, "about": about, "outcomes": [asdict(one) for one in outcomes]}
    storage.write_json(output / RECORD, content)
