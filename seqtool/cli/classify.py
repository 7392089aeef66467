"""`seqtool train-classifier` and `seqtool classify`: labels of texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.models import default_model, one_model, open_model
from seqtool.cli.options import (
    JsonOption,
    OutputOption,
    TableOption,
    emit,
    note,
    offer,
    print_settings,
    show_table,
    stdin_instead,
    takes_options,
)
from seqtool.cli.training import (
    SETTINGS,
    PresetFileOption,
    TrainingOptions,
    note_shared,
    note_unread,
    report,
    run_training,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.classification.evaluation import Evaluation
    from seqtool.classification.model import Classifier
    from seqtool.classification.texts import Texts

PREDICTION = "prediction"  # the column of the label
MAX_SHOWN = 12  # labels in a table of confusions
COLUMNS_PANEL = "Columns"


@takes_options(
    "seqtool.classification.config:ClassifierConfig",
    {
        "--text-column": "data.text_column",
        "--label-column": "data.label_column",
        "--encoder": offer(
            "model.encoder",
            help="linear (a bag of n-grams, the default), none (vectors of words alone), lstm, "
            "gru, rhn, bilstm, or lm: the layers of the model of --lm, trained further.",
        ),
        "--pooling": offer(
            "model.pooling",
            help="Read the labels from the last state, or from the mean or max of all (default "
            "max).",
        ),
        "--hidden": "model.hidden_size",
        **SETTINGS,
    },
)
@examples(
    "seqtool train-classifier reviews.csv -o runs/reviews",
    "seqtool train-classifier reviews.csv --encoder bilstm --lm runs/lm",
    "seqtool train-classifier reviews.csv --encoder lm --lm runs/lm",
    "seqtool train-classifier a.jsonl --text-column body --label-column topic",
)
def train_classifier(
    table: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRAIN",
            help="Tables with a text and its label in each row: .csv, .tsv or .jsonl (also "
            "packed).",
        ),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A table by whose accuracy the best epoch is chosen; without it, every tenth row "
            "of TRAIN.",
        ),
    ] = None,
    output: OutputOption = Path("runs/classifier"),
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="linear|recurrent|fine-tuned",
            help="Settings by name; that of the --encoder if not given (of lm, fine-tuned).",
            rich_help_panel="Settings",
        ),
    ] = None,
    config: PresetFileOption = None,
    lm: Annotated[
        Path | None,
        typer.Option(
            "--lm",
            metavar="DIR",
            help="A model of train-lm, which is copied into the output. With --encoder lm "
            "training begins from its weights; other encoders but linear read its state after each "
            "word too.",
            rich_help_panel="Settings",
        ),
    ] = None,
    *,
    settings: dict[str, Any],
    options: TrainingOptions,
) -> None:
    """Train a classifier of texts: topics, sentiments, any labels.

    It says how good it is on the validation part: accuracy, beside that of the commonest label, the
    mean F1 of the labels, each label's scores, and which labels are taken for which.
    """
    from seqtool.classification.config import resolve
    from seqtool.parsing.config import refuse_lm

    chosen = options.resolve(resolve, preset, config, settings=settings, output=output)
    if lm is None and not options.resume:
        refuse_lm(options.given(chosen, settings))
    note_unread(config, chosen)
    if options.list_settings:
        return print_settings(chosen)
    from seqtool.classification.train import train_classifier as train

    note_shared(table or (), dev)
    read: list[Any] = []

    def on_data(data: Any) -> None:
        read.append(data)
        summary = data.summary
        num, num_dev = summary["texts"], summary["dev_texts"]
        if summary["dev_held_out"]:
            _note_held_out(num, num_dev)
        note(
            f"{counted(num, 'text')} of {counted(len(data.labels), 'label')}, {_known(summary)}; "
            f"validation: {counted(num_dev, 'text')}"
        )

    sources: dict[str, Any] = {"dev": dev, "lm": lm}
    trained = run_training(train, table, output, chosen, options, on_data=on_data, **sources)
    from seqtool.core import checkpoint

    found = _evaluated(checkpoint.load(output), read[-1].dev)
    if not options.json:
        _show_evaluation(found)
    report(
        trained,
        options.json,
        f"dev accuracy {found.accuracy:.2f}, macro F1 {found.macro_f1:.2f} (the commonest label "
        f"alone: {found.majority:.2f}); {counted(trained.num_parameters, 'parameter')}; "
        f"model in {trained.path}",
        next=("classify FILE.csv -m {}",),
        dev=found.to_json(),
    )


def _known(summary: Mapping[str, Any]) -> str:
    """Return what a classifier knows of the texts, by the summary of its data."""
    if "units" in summary:
        share = 100 * summary["unknown_units"] / summary["units"]
        unit = {"word": "words", "char": "characters", "byte": "bytes"}
        units = unit.get(summary["lm_unit"], "pieces")
        return f"{summary['units']:,} {units}, {share:.1f}% unknown to the language model"
    if "features" in summary:
        return f"{summary['features']:,} n-grams"
    return counted(summary["words"], "word")


def _note_held_out(num: int, num_dev: int) -> None:
    """Say what of the texts is held out."""
    if num_dev == num:
        note(
            "there are fewer than 10 texts, so none is held out: dev is train, and dev scores say "
            "nothing of other texts; give --dev"
        )
    else:
        note(f"every tenth text is held out as dev: {num_dev:,} of {num + num_dev:,}")


def _evaluated(classifier: Classifier, texts: Texts) -> Evaluation:
    """Return how good a classifier is on texts with labels."""
    from seqtool.classification.evaluation import evaluate

    predicted = [prediction.label for prediction in classifier.pipe(texts.texts)]
    return evaluate(classifier.labels, texts.labels or (), predicted)


def _show_evaluation(found: Evaluation) -> None:
    """Show the scores of each label on stderr, and which labels are taken for which."""
    rows = [
        (*(f"{score:.2f}" for score in scores[1:4]), f"{scores.texts:,}")
        for scores in found.by_label
    ]
    names = [scores.label for scores in found.by_label]
    columns = ["label", "precision", "recall", "F1", "texts"]
    show_table("", columns, [[n, *row] for n, row in zip(names, rows, strict=True)], to_stderr=True)
    if len(names) > MAX_SHOWN:
        note(f"{len(names)} labels are too many to show confusions of; --json has them")
        return
    matrix = [[name, *row] for name, row in zip(names, found.confusion.tolist(), strict=True)]
    note("")
    show_table("Gold label by predicted label", ["", *names], matrix, to_stderr=True)


@examples(
    "seqtool classify new.csv -m runs/reviews -o labelled.csv",
    "seqtool classify test.csv -m runs/reviews --json",
    'echo "A fine film." | seqtool classify -m runs/reviews',
)
def classify(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A table with a text in each row: .csv, .tsv or .jsonl (also packed). Any "
            "other file, or - for stdin, has a text per line, or with --text-column is a table "
            "too. Stdin if not given.",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", "-m", metavar="DIR", help="A classifier; runs/classifier if not given."
        ),
    ] = None,
    output: TableOption = "-",
    text_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column of the texts; that of training if not given.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The column of the gold labels; that of training, where there is such a column.",
            rich_help_panel=COLUMNS_PANEL,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Give texts their labels, with the probability of each label.

    All columns are kept; `prediction` is the label, and `p(LABEL)` how probable each label is.
    Where the file has labels itself, stderr says how good the classifier is. With --json there is
    one object: the scores and, without -o, the rows.
    """
    from dataclasses import replace

    from seqtool.classification.texts import read_texts
    from seqtool.core.reading import JSON_LINES
    from seqtool.lm.tables import check_names, check_target, open_table

    check_target(output, [table] if table else [])
    path = one_model(model) or default_model("classifier")
    if table is None and not stdin_instead("FILE"):
        raise ConfigError(
            "no texts are given",
            hint="name a .csv, .tsv or .jsonl, or pipe texts in, one per line",
        )
    classifier: Classifier = open_model(path, "classifier")
    names = {"text_column": text_column, "label_column": label_column}
    columns = replace(
        classifier.config.data, **{name: given for name, given in names.items() if given}
    )
    texts = read_texts(
        table or "-",
        columns,
        labelled=True if label_column else None,
        is_table=text_column is not None,
    )
    chances = [f"p({label})" for label in classifier.labels]
    check_names(texts.names, [PREDICTION, *chances], texts.path)
    predicted: list[str] = []
    rows: list[dict[str, Any]] = []
    is_shown = as_json and output == "-"
    parts = _labelled(
        classifier, texts, chances, are_texts=not is_shown and Path(output).suffix not in JSON_LINES
    )
    if is_shown:
        for part in parts:
            predicted += part[PREDICTION]
            rows += [dict(zip(part, row, strict=True)) for row in zip(*part.values(), strict=True)]
    else:
        with open_table(output) as target:
            for part in parts:
                predicted += part[PREDICTION]
                target.write(part)
    found = None
    if texts.labels is not None:
        from seqtool.classification.evaluation import evaluate

        found = evaluate(classifier.labels, texts.labels, predicted)
    num_cut = classifier.num_cut(texts.texts)
    if num_cut:
        longest = classifier.config.model.max_words
        note(f"{counted(num_cut, 'text')} read up to word {longest:,} only")
    if as_json:
        content: dict[str, Any] = {"texts": len(predicted), "cut": num_cut}
        content |= {} if found is None else found.to_json()
        return emit(content | ({"rows": rows} if output == "-" else {"output": output}))
    _note_scores(found, classifier, len(predicted))


def _note_scores(found: Evaluation | None, classifier: Classifier, num: int) -> None:
    """Say how many texts were read and, of gold labels, how good the predicted ones are."""
    if found is None:
        return note(counted(num, "text"))
    _show_evaluation(found)
    if unseen := found.labels[len(classifier.labels) :]:
        note(f"warning: labels that training did not have, always wrong: {', '.join(unseen[:5])}")
    note(
        f"{counted(num, 'text')}: accuracy {found.accuracy:.2f}, macro F1 {found.macro_f1:.2f} "
        f"({classifier.labels[0]} alone: {found.majority:.2f})"
    )


CHUNK_TEXTS = 1 << 10  # written together


def _labelled(
    classifier: Classifier, texts: Texts, chances: Sequence[str], *, are_texts: bool
) -> Iterator[dict[str, list[Any]]]:
    """Give the columns of the rows, chunk by chunk: those of the file, then what is predicted.

    With `are_texts`, cells are texts: of JSON Lines, one may be anything that a table cannot hold.
    """
    for begin in range(0, len(texts.texts), CHUNK_TEXTS):
        end = begin + CHUNK_TEXTS
        probabilities = classifier.probabilities(texts.texts[begin:end])
        labels = [classifier.labels[place] for place in probabilities.argmax(1).tolist()]
        given = zip(*texts.rows[begin:end], strict=True)
        columns = {name: list(cells) for name, cells in zip(texts.names, given, strict=True)}
        if are_texts:
            columns = {name: [*map(_as_text, cells)] for name, cells in columns.items()}
        columns[PREDICTION] = labels
        yield columns | dict(zip(chances, probabilities.T.tolist(), strict=True))


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
