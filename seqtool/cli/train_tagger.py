"""`seqtool train-tagger`: train a tagger and lemmatizer, or labels of words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from seqtool.cli.labels import (
    LabelColumnOption,
    WordColumnOption,
    describe_scores,
    note_columns,
    show_types,
)
from seqtool.cli.options import (
    OutputOption,
    note,
    print_settings,
    takes_options,
)
from seqtool.cli.training import (
    SETTINGS,
    EmbeddingsOption,
    LanguageModelOption,
    PresetFileOption,
    TreebankOptions,
    dev_option,
    note_data,
    report,
    run_training,
    setting_option,
    treebank_argument,
)
from seqtool.cli.usage import examples
from seqtool.core.errors import counted

SCHEMES = {  # of labels of words
    "bio": "BIO: what it does not allow is never predicted, and the best epoch has the highest F1",
    "entities": "those of entities, but not BIO throughout (I-X after B-X or I-X alone): each is "
    "chosen by itself, and the best epoch has the highest F1",
    "any": "not those of entities (B-X, I-X, O): the best epoch has the highest accuracy",
}


@takes_options("seqtool.parsing.tagger.config:TaggerConfig", SETTINGS)
@examples(
    "seqtool train-tagger train.conllu --dev dev.conllu -o runs/tagger",
    "seqtool train-tagger train.conllu --preset fast --embeddings vectors.vec",
    "seqtool train-tagger names.conllu --column NER -o runs/names",
)
def train_tagger(
    treebank: Annotated[
        list[Path] | None, treebank_argument("with tags and lemmas (also packed)")
    ] = None,
    dev: Annotated[Path | None, dev_option("tags")] = None,
    output: OutputOption = Path("runs/tagger"),
    preset: Annotated[
        str | None, setting_option("Settings by name (default accurate).", "accurate|fast")
    ] = None,
    config: PresetFileOption = None,
    embeddings: EmbeddingsOption = None,
    lm: LanguageModelOption = None,
    column: Annotated[
        str | None,
        setting_option(
            "Learn labels in place of tags and lemmas, such as named entities: what column MISC "
            "has under this key, as NER=B-PER; of files with a word a line, a column.",
            "KEY",
        ),
    ] = None,
    word_column: WordColumnOption = None,
    label_column: LabelColumnOption = None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
) -> None:
    """Train a tagger and lemmatizer on a treebank, or with --column a labeller of words.

    It learns columns UPOS, XPOS, FEATS and LEMMA; trees are not looked at.
    """
    sources: dict[str, Any] = {"dev": dev, "embeddings": embeddings, "lm": lm}
    named = {"column": column, "word_column": word_column, "label_column": label_column}
    given = {f"data.{name}": value for name, value in named.items() if value is not None}
    if given or (options.resume and _is_labeller(output)):
        return _train_labels(
            treebank, output, preset, config, settings=settings | given, options=options, **sources
        )
    from seqtool.parsing.tagger.config import resolve

    facts = ["--lm"] if lm or options.resume else []
    chosen = options.resolve(resolve, preset, config, settings=settings, output=output, facts=facts)
    if options.list_settings:
        return print_settings(chosen)
    treebank, dev = options.treebanks(treebank, dev)
    from seqtool.parsing.tagger.train import train_tagger as train

    def on_data(data: Any) -> None:
        summary = data.summary
        note_data(
            summary,
            f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
            f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
            f"{counted(summary['bundles'], 'bundle')} of tags, "
            f"{counted(summary['edit_scripts'], 'edit script')}",
        )
        learning = chosen.learning
        if learning.label_smoothing and learning.share_parts and data.bundles.parts.size:
            note("tags share morphemes, so they are learnt without label_smoothing")

    sources["dev"] = dev
    trained = run_training(train, treebank, output, chosen, options, on_data=on_data, **sources)
    scores = trained.scores
    report(
        trained,
        options.json,
        f"dev UPOS {scores['dev_upos']:.2f}, XPOS {scores['dev_xpos']:.2f}, "
        f"FEATS {scores['dev_feats']:.2f}, lemmas {scores['dev_lemmas']:.2f}; "
        f"{counted(trained.num_parameters, 'parameter')}; model in {trained.path}",
        next=("tag FILE.conllu -m {}",),
    )


def _is_labeller(output: Path) -> bool:
    """Whether the run in a directory trains a labeller."""
    from seqtool.core.checkpoint import run_kind

    return run_kind(output) == "labeller"


def _train_labels(
    files: list[Path] | None,
    output: Path,
    preset: str | None,
    config: Path | None,
    *,
    settings: dict[str, Any],
    options: TreebankOptions,
    **sources: Any,
) -> None:
    """Train a labeller of words; the options are those of `train-tagger`."""
    from seqtool.parsing.labeller.config import resolve

    facts = ["--lm"] if sources["lm"] or options.resume else []
    chosen = options.resolve(resolve, preset, config, settings=settings, output=output, facts=facts)
    if options.list_settings:
        return print_settings(chosen)
    from seqtool.core import checkpoint
    from seqtool.parsing.labeller.data import count_dev, scheme_of
    from seqtool.parsing.labeller.train import train_labeller as train

    dev = sources["dev"]
    named = (chosen.data.word_column, chosen.data.label_column)
    note_columns(map(str, [*(files or ()), *([dev] if dev else [])]), *named)
    read: list[Any] = []

    def on_data(data: Any) -> None:
        read.append(data)
        summary = data.summary
        note_data(
            summary,
            f"{counted(summary['sentences'], 'sentence')} of {summary['words']:,} words; "
            f"validation: {counted(summary['dev_sentences'], 'sentence')}; "
            f"{counted(summary['labels'], 'label')}",
        )
        note(f"the labels are {SCHEMES[scheme_of(data)]}")

    trained = run_training(train, files, output, chosen, options, on_data=on_data, **sources)
    counts = count_dev(checkpoint.load(output), read[-1])
    if not options.json:
        show_types(counts)
    report(
        trained,
        options.json,
        f"dev {describe_scores(counts)}; {counted(trained.num_parameters, 'parameter')}; "
        f"model in {trained.path}",
        next=("tag FILE -m {}",),
        types={name: scores._asdict() for name, scores in counts.by_type.items()},
    )
