"""`seqtool eval-parser`: the scores of parsed text against a gold annotation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.annotate import AllowMissingOption
from seqtool.cli.models import (
    default_model,
    hinting_allow_missing,
    names_of,
    note_beam,
    note_unknown,
    open_model,
)
from seqtool.cli.options import (
    UNNAMED,
    JsonOption,
    SeedOption,
    emit,
    note,
    show_table,
    stdin_instead,
    stdin_or_sample,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.core.bootstrap import Significance
    from seqtool.treebank.alignment import Annotation
    from seqtool.treebank.evaluation import ParserEvaluation
    from seqtool.treebank.sentence import Sentence

COMMONEST = 20  # confusions that are shown


@examples(
    "seqtool eval-parser dev.conllu -m runs/parser --beam 4",
    "seqtool eval-parser dev.conllu parsed.conllu --per-relation",
    "seqtool eval-parser dev.conllu -m runs/parser -m runs/other --together",
)
def eval_parser(
    gold: Annotated[
        str | None,
        typer.Argument(
            metavar="GOLD",
            help="Treebank: a CoNLL-U file (also packed), a directory, - for stdin. "
            f"{UNNAMED} the shipped sample's English test treebank.",
        ),
    ] = None,
    predicted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PREDICTED",
            help="Annotations of the same text; several are compared with the first. Without one "
            "and without -m: stdin where that is a pipe or a file, else GOLD's words parsed by the "
            "default model.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Parse GOLD's words with this model, then score; repeatable. Tags and lemmas that "
            "GOLD has are kept, also by a model of --raw.",
        ),
    ] = None,
    beam: Annotated[
        int, typer.Option(min=1, metavar="N", help="Hypotheses that a model follows at once.")
    ] = 1,
    no_punct: Annotated[
        bool,
        typer.Option(
            "--no-punct",
            help="Leave punctuation (gold UPOS PUNCT or relation punct) out of UAS and LAS.",
        ),
    ] = False,
    per_relation: Annotated[
        bool, typer.Option("--per-relation", help="Also labelled attachment of each relation.")
    ] = False,
    per_length: Annotated[
        bool,
        typer.Option(
            "--per-length", help="Also labelled attachment by words from head to dependent."
        ),
    ] = False,
    confusion: Annotated[
        bool, typer.Option("--confusion", help="Also the commonest relations taken for others.")
    ] = False,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Score also what the models find together, as of `seqtool parse -m A -m B`.",
        ),
    ] = False,
    allow_missing: AllowMissingOption = False,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score parsed text as the scorer of the CoNLL 2018 shared task does.

    Words, tokens and sentences may differ; the text may not. Relations are compared without their
    subtypes. Of several annotations, each is compared with the first by a paired bootstrap over
    sentences. Where arcs have probabilities (MISC, `Score=0.987`), their expected calibration error
    is given too; --json asks models for them.
    """
    from seqtool.core.bootstrap import SEED
    from seqtool.treebank.evaluation import compare_evaluations, score_annotation

    gold = gold or stdin_or_sample("GOLD", "trees")
    files = list(predicted or [])
    if [gold, *files].count("-") > 1:
        raise ConfigError("stdin can be read once only", hint="give - for one file, not for two")
    models = list(model or [])
    names_of(models)
    if not files and not models:
        if gold != "-" and stdin_instead("PREDICTED"):
            files = ["-"]
        else:
            models = [default_model("parser")]
    for option, is_given in (("--beam", beam > 1), ("--allow-missing", allow_missing)):
        if is_given and not models:
            what = f"{option} is for models that parse, and none is given"
            raise ConfigError(what, hint=f"name one with -m, or leave {option} out")
    if together and len(models) < 2:
        raise ConfigError("--together is for several models", hint="name another one with -m")
    groups = [[path] for path in models] + [models] * together
    if seed is not None and len(files) + len(groups) < 2:
        raise ConfigError(
            "--seed is of the bootstrap that compares annotations, and there is one",
            hint="name another one, or leave --seed out",
        )
    gold_annotation, annotations = _annotations(
        gold, files, groups, beam=beam, allow_missing=allow_missing, scores=as_json
    )
    names = [*files, *map(str, models), *["together"] * together]
    results = [
        score_annotation(gold_annotation, annotation, punctuation=not no_punct)
        for annotation in annotations
    ]
    leads = [
        compare_evaluations(results[0], result, seed=SEED if seed is None else seed)
        for result in results[1:]
    ]
    wanted: dict[str, Any] = {
        "relations": per_relation,
        "lengths": per_length,
        "confusions": COMMONEST if confusion else 0,
    }
    if as_json:
        return emit(_to_json(gold, names, results, leads, wanted))
    _show(gold, names, results, leads)
    for name, result in zip(names, results, strict=True):
        _show_tables(name if len(names) > 1 else "", result, wanted)


def _annotations(
    gold: str,
    files: Sequence[str],
    groups: Sequence[Sequence[Path]],
    *,
    beam: int,
    allow_missing: bool,
    scores: bool,
) -> tuple[Annotation, list[Annotation]]:
    """Read GOLD and the files, and let the models of each group parse GOLD's words together.

    With `scores`, the models give probabilities to arcs, which takes them longer.
    """
    from seqtool.core.progress import progress_bar
    from seqtool.parsing.parser.columns import naming_reader
    from seqtool.treebank.alignment import read_annotation
    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.scores import without_score
    from seqtool.treebank.sentence import MISC, UPOS, Sentence

    parsers = [open_model(paths, "parser") for paths in groups]
    if allow_missing and all(parser.has_tagger for parser in parsers):
        raise ConfigError(
            "the models tag words that have no tags, so there is nothing to allow",
            hint="leave --allow-missing out",
        )
    for paths, parser in zip(groups, parsers, strict=True):
        note_beam(parser, beam, paths)
    sentences: list[Sentence] = []
    with progress_bar("reading", is_bytes=True) as on_progress:
        if parsers:  # they are parsed as well, and stdin cannot be read again
            sentences = list(read_conllu(gold, skip_option="", on_progress=on_progress))
            gold_annotation = read_annotation(sentences)
            for sentence in sentences:  # what GOLD's trees had is not what the models say
                for columns in sentence.rows:
                    columns[MISC] = without_score(columns[MISC])
        else:
            gold_annotation = read_annotation(gold, on_progress=on_progress)
    annotations = [read_annotation(path) for path in files]
    has_tags = any(columns[UPOS] != "_" for sentence in sentences for columns in sentence.rows)
    for paths, parser in zip(groups, parsers, strict=True):
        if len(paths) == 1:  # what they find together is by parsers that were told of
            note_unknown(parser, sentences, paths[0])
        if parser.has_tagger and has_tags:
            note(
                f"{', '.join(map(str, paths))}: gold words, and the tags and lemmas that {gold} "
                "has; to score it from plain text, see the manual: seqtool help evaluate"
            )
        more = {} if parser.has_tagger else {"allow_missing": allow_missing}
        # a parser overwrites trees only, but a pipeline also fills in the tags and lemmas that are
        # not there, and the next model must not find them
        given = [item.copy() for item in sentences] if parser.has_tagger else sentences
        parsed = parser.parse_stream(given, beam=beam, scores=scores, **more)
        name = ", ".join(map(str, paths)) if len(groups) > 1 else None
        with hinting_allow_missing(), naming_reader(name):
            whole = (item for item in parsed if isinstance(item, Sentence))
            annotations.append(read_annotation(whole))
    return gold_annotation, annotations


def _to_json(
    gold: str,
    names: Sequence[str],
    results: Sequence[ParserEvaluation],
    leads: Sequence[dict[str, Significance]],
    wanted: dict[str, Any],
) -> dict[str, Any]:
    """Return the one object of --json: flat for one annotation, lists for several."""
    header = {
        "gold": gold,
        "sentences": results[0].sentences,
        "words": results[0].words,
        "punctuation": results[0].punctuation,
    }
    objects = [
        {"predicted": name, **result.to_json(), **result.details_to_json(**wanted)}
        for name, result in zip(names, results, strict=True)
    ]
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
) -> None:
    size = (counted(results[0].sentences, "sentence"), counted(results[0].words, "word"))
    echo(f"gold       {gold}: {', '.join(size)}")
    for name in names:
        echo(f"predicted  {name}")
    if not results[0].punctuation:
        echo("UAS and LAS without punctuation")
    echo()
    if len(results) == 1:
        rows = [
            [
                metric,
                *("" if figure is None else f"{figure:.2f}" for figure in score.to_json().values()),
            ]
            for metric, score in results[0].scores.items()
        ]
        show_table("", ["metric", "precision", "recall", "F1", "aligned accuracy"], rows)
        if (calibration := results[0].calibration) is not None:
            echo()
            echo(
                f"expected calibration error of the arcs' probabilities {calibration.error:.4f} "
                f"({counted(len(calibration.bins), 'bin')} of as many words)"
            )
        return
    rows = [
        [metric, *(f"{result[metric].f1:.2f}" for result in results)]
        for metric in results[0].scores
    ]
    show_table("F1", ["metric", *names], rows)
    for name, lead in zip(names[1:], leads, strict=True):
        echo()
        rows = [
            [metric]
            + [f"{points:+.2f}" for points in (found.difference, found.low, found.high)]
            + [f"{found.p_value:.4f}"]
            for metric, found in lead.items()
        ]
        columns = ["metric", "difference", "95% from", "to", "p"]
        show_table(f"{name} against {names[0]}, paired bootstrap", columns, rows)


def _show_tables(name: str, result: ParserEvaluation, wanted: dict[str, Any]) -> None:
    """Print the tables asked for; `name` of the annotation stands in their titles, if any."""
    where = f" of {name}" if name else ""
    for title, table, is_wanted in (
        ("relation", result.relations, wanted["relations"]),
        ("length", result.lengths, wanted["lengths"]),
    ):
        if is_wanted:
            rows = [
                [key, score.gold, score.predicted, score.correct]
                + [f"{figure:.2f}" for figure in (score.precision, score.recall, score.f1)]
                for key, score in table.items()
            ]
            columns = [title, "gold", "predicted", "correct", "precision", "recall", "F1"]
            echo()
            show_table(f"labelled attachment{where} by {title}", columns, rows)
    if wanted["confusions"]:
        echo()
        found = result.confusions[: wanted["confusions"]]
        if not found:
            echo(f"no relation{where} is taken for another")
            return
        rows = [[pair.gold, pair.predicted, pair.count, pair.right_head] for pair in found]
        columns = ["gold", "predicted", "words", "with the right head"]
        show_table(f"commonest confusions{where}", columns, rows)
