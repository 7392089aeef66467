"""`seqtool eval-parser`: the scores of parsed text against a gold annotation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.annotate import AllowMissingOption
from seqtool.cli.models import (
    default_model,
    names_of,
    note_beam,
    note_unknown,
    open_model,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.core.bootstrap import Significance
    from seqtool.treebank.evaluation import ParserEvaluation
    from seqtool.treebank.sentence import Sentence

COMMONEST = 20  # confusions that are shown
CHANGE = ("sentence", "word", "gold_head", "gold_relation", "predicted_head", "predicted_relation")


@dataclass(frozen=True)
class TableOptions:
    """What is counted, and which tables are shown."""

    no_punct: bool = cli.option(
        False, "Leave punctuation (gold UPOS PUNCT or relation punct) out of UAS and LAS."
    )
    per_relation: bool = cli.option(False, "Also labelled attachment of each relation.")
    per_length: bool = cli.option(
        False, "Also labelled attachment by words from head to dependent."
    )
    confusion: bool = cli.option(False, "Also the commonest relations taken for others.")
    changes: bool = cli.option(False, "Also each word with another head or relation, with both.")

    @property
    def wanted(self) -> dict[str, Any]:
        """The arguments of `details_to_json`."""
        sizes: dict[str, Any] = {"confusions": COMMONEST if self.confusion else 0}
        return {"relations": self.per_relation, "lengths": self.per_length, **sizes}


@examples(
    "seqtool eval-parser dev.conllu -m runs/parser --beam 4",
    "seqtool eval-parser dev.conllu parsed.conllu --per-relation",
    "seqtool eval-parser dev.conllu -m runs/parser -m runs/other --together",
)
def eval_parser(
    gold: str | None = cli.argument(
        None, "A treebank; the sample's English test part if not given.", "GOLD"
    ),
    predicted: list[str] | None = cli.argument(
        None, "Annotations of the same text; without any, a model parses GOLD.", "PREDICTED"
    ),
    model: list[Path] | None = cli.option(
        None, "Parse GOLD's words with this model, then score; repeatable.", "MODEL", "-m"
    ),
    beam: int = cli.option(1, "Hypotheses that a model follows at once.", "N", min=1),
    together: bool = cli.option(
        False, "Score also what the models find together, as of `seqtool parse -m A -m B`."
    ),
    allow_missing: AllowMissingOption = False,
    seed: cli.SeedOption = None,
    as_json: cli.JsonOption = False,
    *,
    tables: TableOptions,
) -> None:
    """Score parsed text as the scorer of the CoNLL 2018 shared task does.

    Words, tokens and sentences may differ; the text may not. Relations are compared without their
    subtypes. Of several annotations, each is compared with the first by a paired bootstrap over
    sentences. Where arcs have probabilities (MISC, `Score=0.987`), their expected calibration error
    is given too; --json asks models for them.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.evaluation import compare_annotations

    gold = gold or cli.stdin_or_sample("GOLD", "trees")
    files, models = _annotations(gold, predicted or [], model or [])
    groups = [[path] for path in models] + [models] * together
    for option, is_given, what, is_there in (
        ("--beam", beam > 1, "models that parse", models),
        ("--allow-missing", allow_missing, "models that parse", models),
        ("--together", together, "several models", len(models) > 1),
        ("--seed", seed is not None, "several annotations", len(files) + len(groups) > 1),
    ):
        if is_given and not is_there:
            hint = f"name another one with -m, or leave {option} out"
            raise ConfigError(f"{option} is for {what}", hint=hint)
    pairs = [(open_model(paths, "parser"), paths) for paths in groups]
    with progress_bar("reading", is_bytes=True) as on_progress:
        sentences = list(read_conllu(gold, skip_option="", on_progress=on_progress))
    options = {"beam": beam, "scores": as_json, "allow_missing": allow_missing}
    parsed = [_parsed(*pair, sentences, gold, options) for pair in pairs]
    seeds = {} if seed is None else {"seed": seed}
    predictions: list[Any] = [*files, *parsed]
    if tables.changes:
        read = [read_conllu(path, skip_option="") for path in files]
        predictions = [list(each) for each in (*read, *parsed)]
    changes = [_changes(sentences, each) for each in predictions] if tables.changes else []
    results, leads = compare_annotations(
        sentences, predictions, punctuation=not tables.no_punct, **seeds
    )
    names = [*files, *map(str, models), *["together"] * together]
    if as_json:
        return cli.emit(_to_json(gold, names, results, leads, tables, changes))
    _show(gold, names, results, leads, tables)
    for name, rows in zip(names, changes, strict=False):
        echo()
        title = f"{counted(len(rows), 'changed word')}{f' of {name}' * (len(names) > 1)}"
        columns = [column.replace("_", " ") for column in CHANGE]
        cli.show_table(title, columns, [list(row.values()) for row in rows])


def _annotations(gold: str, files: list[str], models: list[Path]) -> tuple[list[str], list[Path]]:
    """Return what is scored: files and models as they are named, else stdin or the default one."""
    if [gold, *files].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")
    names_of(models)
    if files or models:
        return files, models
    if gold != "-" and cli.stdin_instead("PREDICTED"):
        return ["-"], []
    return [], [default_model("parser")]


def _parsed(
    parser: Any,
    paths: Sequence[Path],
    gold: Sequence[Sentence],
    name: str,
    options: dict[str, Any],
) -> Iterator[Sentence]:
    """Let a model parse the words of gold sentences, whose file is `name`."""
    from seqtool.parsing.missing_columns import naming_reader
    from seqtool.treebank.misc import without_score
    from seqtool.treebank.sentence import MISC, UPOS, Sentence

    shown = ", ".join(map(str, paths))
    note_beam(parser, options["beam"], paths)
    if len(paths) == 1:  # of several together, each was told of
        note_unknown(parser, gold, paths[0])
    if parser.has_tagger:
        options = {key: value for key, value in options.items() if key != "allow_missing"}
        if any(row[UPOS] != "_" for sentence in gold for row in sentence.rows):
            cli.note(
                f"{shown}: gold words, and the tags and lemmas that {name} has; to score it from "
                "plain text, see the manual: seqtool help measure"
            )

    def copies() -> Iterator[Sentence]:
        for sentence in map(Sentence.copy, gold):
            for row in sentence.rows:  # probabilities of GOLD's trees are not those of the model
                row[MISC] = without_score(row[MISC])
            yield sentence

    with naming_reader(shown):
        for item in parser.parse_stream(copies(), **options):
            if isinstance(item, Sentence):
                yield item


def _changes(gold: Iterable[Sentence], predicted: Iterable[Sentence]) -> list[dict[str, str]]:
    """Return a row of each word with another head or relation, subtypes counted."""
    from seqtool.treebank.drawing.rendering import grouped

    rows = []
    for number, [marked] in enumerate(grouped([predicted], [""], gold), start=1):
        words = ["0", *(f"{i} {form}" for i, form in enumerate(marked.forms, start=1))]
        arcs = zip(marked.heads, marked.relations, strict=True)
        name = marked.name or str(number)
        rows += [
            dict(zip(CHANGE, (name, word, words[old], was, words[new], relation), strict=True))
            for word, (old, was), (new, relation) in zip(
                words[1:], marked.gold or (), arcs, strict=True
            )
            if (old, was) != (new, relation)
        ]
    return rows


def _to_json(
    gold: str,
    names: Sequence[str],
    results: Sequence[ParserEvaluation],
    leads: Sequence[dict[str, Significance]],
    tables: TableOptions,
    changes: Sequence[list[dict[str, str]]],
) -> dict[str, Any]:
    """Return the one object of --json: flat for one annotation, lists for several."""
    first = results[0]
    header = {"gold": gold, "sentences": first.sentences, "words": first.words}
    header["punctuation"] = first.punctuation
    objects = [
        {"predicted": name, **result.to_json(), **result.details_to_json(**tables.wanted)}
        for name, result in zip(names, results, strict=True)
    ]
    for each, rows in zip(objects, changes, strict=False):
        each["changes"] = rows
    if len(objects) == 1:
        return {**header, **objects[0]}
    significance = [
        {"first": names[0], "second": name, **{metric: asdict(lead[metric]) for metric in lead}}
        for name, lead in zip(names[1:], leads, strict=True)
    ]
    return {**header, "results": objects, "significance": significance}


def _show(
    gold: str,
    names: Sequence[str],
    results: Sequence[ParserEvaluation],
    leads: Sequence[dict[str, Significance]],
    tables: TableOptions,
) -> None:
    first = results[0]
    echo(
        f"gold       {gold}: {counted(first.sentences, 'sentence')}, {counted(first.words, 'word')}"
    )
    for name in names:
        echo(f"predicted  {name}")
    if not first.punctuation:
        echo("UAS and LAS without punctuation")
    echo()
    if len(results) > 1:
        rows = [[metric, *_cells(each[metric].f1 for each in results)] for metric in first.scores]
        cli.show_table("F1", ["metric", *names], rows)
    else:
        rows = [[name, *_cells(each.to_json().values())] for name, each in first.scores.items()]
        cli.show_table("", ["metric", "precision", "recall", "F1", "aligned accuracy"], rows)
        if first.calibration is not None:
            echo()
            echo(
                "expected calibration error of the arcs' probabilities "
                f"{first.calibration.error:.4f} "
                f"({counted(len(first.calibration.bins), 'bin')} of as many words)"
            )
    for name, lead in zip(names[1:], leads, strict=True):
        rows = [
            [
                metric,
                *(f"{points:+.2f}" for points in (each.difference, each.low, each.high)),
                f"{each.p_value:.4f}",
            ]
            for metric, each in lead.items()
        ]
        columns = ["metric", "difference", "95% from", "to", "p"]
        echo()
        cli.show_table(f"{name} against {names[0]}, paired bootstrap", columns, rows)
    for name, result in zip(names, results, strict=True):
        _show_tables(f" of {name}" * (len(names) > 1), result, tables)


def _cells(values: Iterable[float | str | None]) -> list[str]:
    """Return numbers as tables show them: counts whole, percents with two decimals."""
    shown = ("" if value is None else value for value in values)
    return [f"{value:.2f}" if isinstance(value, float) else str(value) for value in shown]


def _show_tables(where: str, result: ParserEvaluation, tables: TableOptions) -> None:
    """Print the tables asked for; `where` follows their titles."""
    details = result.details_to_json(**tables.wanted)
    for title in ("relation", "length"):
        if rows := [
            [key, *_cells(row.values())] for key, row in details.get(f"{title}s", {}).items()
        ]:
            echo()
            columns = [title, "gold", "predicted", "correct", "precision", "recall", "F1"]
            cli.show_table(f"labelled attachment{where} by {title}", columns, rows)
    if pairs := details.get("confusions"):
        echo()
        columns = ["gold", "predicted", "words", "with the right head"]
        rows = [_cells(pair.values()) for pair in pairs]
        cli.show_table(f"commonest confusions{where}", columns, rows)
    elif tables.confusion:
        echo(f"\nno relation{where} is taken for another")
