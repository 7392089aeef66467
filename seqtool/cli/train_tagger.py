"""`seqtool train-tagger`: train a tagger and lemmatizer, or labels of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtool.cli import labels, training
from seqtool.cli.options import OutputOption, note, setting_option, takes_options
from seqtool.cli.training import note_data, report
from seqtool.cli.usage import examples
from seqtool.core.errors import counted

SCHEMES = {  # of labels of words
    "bio": "BIO: what that does not allow is never predicted; the best epoch is that of F1",
    "entities": "of entities, but not BIO throughout; the best epoch is that of F1",
    "any": "not of entities (B-X, I-X, O); the best epoch is that of accuracy",
}
SHOWN = {"UPOS": "dev_upos", "XPOS": "dev_xpos", "FEATS": "dev_feats", "lemmas": "dev_lemmas"}


@takes_options("seqtool.parsing.tagger.config:TaggerConfig", training.SETTINGS)
@examples(
    "seqtool train-tagger train.conllu --dev dev.conllu -o runs/tagger",
    "seqtool train-tagger train.conllu --preset fast --embeddings vectors.vec",
    "seqtool train-tagger names.conllu --column NER -o runs/names",
)
def train_tagger(
    treebank: list[Path] | None = training.treebank_argument("with tags and lemmas (also packed)"),
    dev: Path | None = training.dev_option("tags"),
    output: OutputOption = Path("runs/tagger"),
    preset: str | None = setting_option(
        None, "Settings by name (default accurate).", "accurate|fast"
    ),
    column: str | None = setting_option(
        None, "Learn the labels in MISC under this key, or in a column.", "KEY"
    ),
    word_column: labels.WordColumnOption = None,
    label_column: labels.LabelColumnOption = None,
    *,
    settings: dict[str, Any],
    options: training.TreebankOptions,
) -> None:
    """Train a tagger and lemmatizer on a treebank, or with --column a labeller of words.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    from seqtool.core.checkpoint import run_kind
    from seqtool.parsing.config import PRESETS_OF

    named = {"column": column, "word_column": word_column, "label_column": label_column}
    settings |= {f"data.{name}": value for name, value in named.items() if value is not None}
    has_labels = any(value is not None for value in named.values())
    has_labels = has_labels or (options.resume and run_kind(output) == "labeller")
    combine = PRESETS_OF["labeller" if has_labels else "tagger"].resolve
    chosen = options.resolve(combine, (preset, options.config), settings, output)
    if chosen is None:
        return
    if has_labels:
        return _train_labels(treebank, dev, output, chosen, options)
    from seqtool.parsing.tagger.train import train_tagger as train

    def on_data(data: Any) -> None:
        bundles, scripts = data.summary["bundles"], data.summary["edit_scripts"]
        tags = f"{counted(bundles, 'bundle')} of tags, {counted(scripts, 'edit script')}"
        note_data(data.summary, tags)
        learning = chosen.learning
        if learning.label_smoothing and learning.share_parts and data.bundles.parts.size:
            note("tags share morphemes, so they are learnt without label_smoothing")

    treebank, dev = options.treebanks(treebank, dev)
    sources = {"dev": dev, "embeddings": options.embeddings}
    trained = options.run(train, treebank, output, chosen, on_data=on_data, **sources)
    scores = ", ".join(f"{name} {trained.scores[key]:.2f}" for name, key in SHOWN.items())
    report(trained, options.json, f"dev {scores}", next=("tag FILE.conllu -m {}",))


def _train_labels(
    files: list[Path] | None,
    dev: Path | None,
    output: Path,
    chosen: Any,
    options: training.TreebankOptions,
) -> None:
    """Train a labeller of words."""
    from seqtool.core import checkpoint
    from seqtool.parsing.tagger.data import scheme_of
    from seqtool.parsing.tagger.train import train_labeller as train

    columns = (chosen.data.word_column, chosen.data.label_column)
    labels.note_columns(map(str, [*(files or ()), *([dev] if dev else [])]), *columns)
    read: list[Any] = []

    def on_data(data: Any) -> None:
        read.append(data)
        note_data(data.summary, counted(data.summary["labels"], "label"))
        note(f"the labels are {SCHEMES[scheme_of(data)]}")

    sources = {"dev": dev, "embeddings": options.embeddings}
    trained = options.run(train, files, output, chosen, on_data=on_data, **sources)
    counts = checkpoint.load(output).count_dev(read[-1])
    if not options.json:
        labels.show_types(counts)
    types = {name: scores._asdict() for name, scores in counts.by_type.items()}
    scores = f"dev {labels.describe_scores(counts)}"
    report(trained, options.json, scores, next=("tag FILE -m {}",), types=types)
