"""`seqtool train-classifier` and `seqtool classify`: labels of texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli import training
from seqtool.cli.models import default_model, one_model, open_model
from seqtool.cli.options import (
    argument,
    note,
    option,
    option_for,
    setting_option,
    show_table,
    takes_options,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from seqtool.classification.data import Texts
    from seqtool.classification.evaluation import Evaluation
    from seqtool.classification.model import Classifier


PREDICTION = "prediction"  # the column of the label
MAX_SHOWN = 12  # labels in a table of confusions
CHUNK_TEXTS = 1 << 10  # written together
UNITS = {"word": "words", "char": "characters", "byte": "bytes"}  # of a language model


@takes_options(
    "seqtool.classification.config:ClassifierConfig",
    {
        "--text-column": "data.text_column",
        "--label-column": "data.label_column",
        "--encoder": option_for(
            "model.encoder",
            help="linear (a bag of n-grams, the default), bilstm (reads words in both directions), "
            "or lm: the layers of the model of --lm, trained further.",
        ),
        "--hidden": "model.hidden_size",
        **training.SETTINGS,
    },
)
@examples(
    "seqtool train-classifier reviews.csv -o runs/reviews",
    "seqtool train-classifier reviews.csv --encoder bilstm --lm runs/lm",
    "seqtool train-classifier reviews.csv --encoder lm --lm runs/lm",
    "seqtool train-classifier a.jsonl --text-column body --label-column topic",
)
def train_classifier(
    table: list[Path] | None = argument(
        None, "Tables (.csv, .tsv, .jsonl) with a text and its label in each row.", "TRAIN"
    ),
    dev: Path | None = training.dev_option("accuracy", "A table", "row"),
    output: cli.OutputOption = Path("runs/classifier"),
    preset: str | None = setting_option(
        None, "Settings by name; that of the --encoder if not given.", "linear|recurrent|fine-tuned"
    ),
    config: Path | None = training.preset_file_option(),
    lm: Path | None = setting_option(
        None,
        "A model of train-lm whose state after each word is read too, or trained (--encoder lm).",
        "DIR",
    ),
    *,
    settings: dict[str, Any],
    options: training.TrainingOptions,
) -> None:
    """Train a classifier of texts: topics, sentiments, any labels.

    It says how good it is on the validation part: accuracy, beside that of the commonest label, the
    mean F1 of the labels, each label's scores, and which labels are taken for which.
    """
    from seqtool.classification.config import resolve

    facts = ["--lm"] if lm or options.resume else []
    chosen = options.resolve(resolve, (preset, config), settings, output, facts)
    if chosen is None:
        return
    from seqtool.classification.evaluation import evaluate
    from seqtool.classification.train import train_classifier as train
    from seqtool.core import checkpoint

    training.note_shared(table or (), dev)
    dev_texts: list[Texts] = []

    def on_data(data: Any) -> None:
        dev_texts.append(data.dev)
        _note_data(data)

    trained = options.run(train, table, output, chosen, dev=dev, lm=lm, on_data=on_data)
    classifier, texts = checkpoint.load(output), dev_texts[-1]
    predicted = [prediction.label for prediction in classifier.pipe(texts.texts)]
    scores = evaluate(classifier.labels, texts.labels or (), predicted)
    if not options.json:
        _show_evaluation(scores)
    training.report(
        trained,
        options.json,
        f"dev accuracy {scores.accuracy:.2f}, macro F1 {scores.macro_f1:.2f} (the commonest label "
        f"alone: {scores.majority:.2f})",
        next=("classify FILE.csv -m {}",),
        dev=scores.to_json(),
    )


def _note_data(data: Any) -> None:
    """Say what is trained on, what of it is held out, and what a classifier knows of it."""
    summary: Mapping[str, Any] = data.summary
    num, num_dev = summary["texts"], summary["dev_texts"]
    if summary["dev_held_out"] and num_dev == num:
        note(
            "there are fewer than 10 texts, so none is held out: dev is train, and dev scores "
            "say nothing of other texts; give --dev"
        )
    elif summary["dev_held_out"]:
        note(f"every tenth text is held out as dev: {num_dev:,} of {num + num_dev:,}")
    if "units" in summary:
        share = 100 * summary["unknown_units"] / summary["units"]
        unit = UNITS.get(summary["lm_unit"], "pieces")
        known = f"{summary['units']:,} {unit}, {share:.1f}% unknown to the language model"
    elif "features" in summary:
        known = f"{summary['features']:,} n-grams"
    else:
        known = counted(summary["words"], "word")
    labels = counted(len(data.labels), "label")
    validation = f"validation: {counted(num_dev, 'text')}"
    note(f"{counted(num, 'text')} of {labels}, {known}; {validation}")


def _show_evaluation(scores: Evaluation) -> None:
    """Show the scores of each label on stderr, and which labels are taken for which."""
    rows = [
        [each.label, *(f"{score:.2f}" for score in each[1:4]), f"{each.texts:,}"]
        for each in scores.by_label
    ]
    show_table("", ["label", "precision", "recall", "F1", "texts"], rows, to_stderr=True)
    labels = scores.labels
    if len(labels) > MAX_SHOWN:
        return note(f"{len(labels)} labels are too many to show confusions of; --json has them")
    matrix = [[label, *row] for label, row in zip(labels, scores.confusion.tolist(), strict=True)]
    note("")
    show_table("Gold label by predicted label", ["", *labels], matrix, to_stderr=True)


def column_option(texts: str) -> Any:
    """Return the option of a column of a table."""
    help = f"The column of the {texts}; that of training if not given."
    return option(None, help, "NAME", panel="Columns")


@examples(
    "seqtool classify new.csv -m runs/reviews -o labelled.csv",
    "seqtool classify test.csv -m runs/reviews --json",
    'echo "A fine film." | seqtool classify -m runs/reviews',
)
def classify(
    table: Path | None = argument(
        None, "A table (.csv, .tsv, .jsonl), or a text a line; stdin if not given.", "FILE"
    ),
    model: list[Path] | None = option(
        None, "A classifier; runs/classifier if not given.", "DIR", "-m"
    ),
    output: cli.TableOption = "-",
    text_column: str | None = column_option("texts"),
    label_column: str | None = column_option("gold labels"),
    as_json: cli.JsonOption = False,
) -> None:
    """Give texts their labels, with the probability of each label.

    All columns are kept; `prediction` is the label, and `p(LABEL)` how probable each label is.
    Where the file has labels itself, stderr says how good the classifier is. With --json there is
    one object: the scores and, without -o, the rows.
    """
    from seqtool.classification.evaluation import evaluate
    from seqtool.core.reading import JSON_LINES
    from seqtool.lm.tables import check_names, check_target, open_table

    check_target(output, [table] if table else [])
    path = one_model(model) or default_model("classifier")
    if table is None and not cli.stdin_instead("FILE"):
        hint = "name a .csv, .tsv or .jsonl, or pipe texts in, one per line"
        raise ConfigError("no texts are given", hint=hint)
    classifier: Classifier = open_model(path, "classifier")
    texts = _read(classifier, table, text_column, label_column)
    names = [PREDICTION, *(f"p({label})" for label in classifier.labels)]
    check_names(texts.names, names, texts.path)
    is_shown = as_json and output == "-"
    keeps_types = is_shown or Path(output).suffix in JSON_LINES
    predicted: list[str] = []
    rows: list[dict[str, Any]] = []
    with nullcontext() if is_shown else open_table(output) as target:
        for part in _labelled(classifier, texts, names, keeps_types=keeps_types):
            predicted += part[PREDICTION]
            if target is not None:
                target.write(part)
                continue
            columns = zip(*part.values(), strict=True)
            rows += [dict(zip(part, row, strict=True)) for row in columns]
    has_labels = texts.labels is not None
    scores = evaluate(classifier.labels, texts.labels or (), predicted) if has_labels else None
    if num_cut := classifier.num_cut(texts.texts):
        longest = classifier.config.model.max_words
        note(f"{counted(num_cut, 'text')} read up to word {longest:,} only")
    if as_json:
        content = {"texts": len(predicted), "cut": num_cut, **(scores.to_json() if scores else {})}
        return cli.emit(content | ({"rows": rows} if is_shown else {"output": output}))
    if scores is None:
        return note(counted(len(predicted), "text"))
    _show_evaluation(scores)
    if new := scores.labels[len(classifier.labels) :]:
        note(f"warning: labels that training did not have, always wrong: {', '.join(new[:5])}")
    note(
        f"{counted(len(predicted), 'text')}: accuracy {scores.accuracy:.2f}, macro F1 "
        f"{scores.macro_f1:.2f} ({classifier.labels[0]} alone: {scores.majority:.2f})"
    )


def _read(
    classifier: Classifier, table: Path | None, text_column: str | None, label_column: str | None
) -> Texts:
    """Return texts, with labels where there are some, by the columns of training or by these."""
    from dataclasses import replace

    from seqtool.classification.data import read_texts

    columns = {"text_column": text_column, "label_column": label_column}
    named = {key: name for key, name in columns.items() if name}
    return read_texts(
        table or "-",
        replace(classifier.config.data, **named),
        labelled=True if label_column else None,
        is_table=text_column is not None,
    )


def _labelled(
    classifier: Classifier, texts: Texts, names: Sequence[str], *, keeps_types: bool
) -> Iterator[dict[str, list[Any]]]:
    """Give the columns of the rows, chunk by chunk: those of the file, then the predicted ones.

    Cells are texts unless `keeps_types`: a field of JSON Lines may be what no table can hold.
    """
    for begin in range(0, len(texts.texts), CHUNK_TEXTS):
        chunk = slice(begin, begin + CHUNK_TEXTS)
        probabilities = classifier.probabilities(texts.texts[chunk])
        labels = [classifier.labels[place] for place in probabilities.argmax(1).tolist()]
        cells = [[*column] for column in zip(*texts.rows[chunk], strict=True)]
        if not keeps_types:
            cells = [[*map(_as_text, column)] for column in cells]
        cells += [labels, *probabilities.T.tolist()]
        yield dict(zip([*texts.names, *names], cells, strict=True))


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
