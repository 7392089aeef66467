"""The model of a command: the default one, and opening it without torch where it needs none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from seqtool.cli.options import note
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from seqtool.treebank.sentence import Sentence


class Kind(NamedTuple):
    """A kind of models: what makes one, what headers call those of it, what they alone can do."""

    command: str  # makes it in runs/KIND where nothing else is said
    headers: tuple[str, ...]
    ability: str = ""


KINDS = {
    "classifier": Kind("train-classifier", ("classifier",), "probabilities"),
    "lm": Kind("train-lm", ("neural-lm", "syntactic-lm", "mixture")),
    "ngram": Kind("ngram train", ("ngram", "class-ngram", "snm", "mixture")),
    "parser": Kind("train-parser", ("parser", "pipeline", "syntactic-lm"), "parse_stream"),
    "segmenter": Kind("train-parser --raw --only segmenter", ("segmenter", "pipeline"), "segment"),
    "tagger": Kind("train-tagger", ("tagger", "labeller", "pipeline"), "tag_stream"),
}

ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "-m", "--model", metavar="MODEL", help="A language model or ARPA file; several are mixed."
    ),
]
EachModelOption = Annotated[
    list[Path] | None,
    typer.Option(
        "-m", "--model", metavar="MODEL", help="A language model or ARPA file; repeatable."
    ),
]
WeightsOption = Annotated[
    str | None, typer.Option(metavar="W,W...", help="Shares of models, as 0.3,0.7; else equal.")
]


def default_model(*kinds: str, otherwise: str = "") -> Path:
    """Return the default model of the first of these kinds that has one, and say so on stderr.

    Args:
        kinds: of models, as in `KINDS`.
        otherwise: what the hint says that can be done without a model.

    Raises:
        ModelError: there is none; the hint names the command that makes one, and models at hand.
    """
    for kind in kinds:
        path = Path("runs", kind)
        with suppress(ModelError):
            checkpoint.find(path)  # also one in training, or that is being replaced
            note(f"no model given: using {path}")
            return path
    directories = " or ".join(f"runs/{kind}" for kind in kinds)
    commands = " or ".join(f"`seqtool {KINDS[kind].command}`" for kind in kinds)
    others = checkpoint.models_in(Path("runs"), [n for kind in kinds for n in KINDS[kind].headers])
    choose = [f"choose one: {', '.join(others[:8])}"] if others else []
    hint = ", or ".join([f"train one with {commands}", *choose, *filter(None, [otherwise])])
    raise ModelError(f"no model was given, and there is none in {directories}", hint=hint)


def chosen_models(models: Sequence[Path] | None) -> list[Path]:
    """Return the models of `-m`, or the default one.

    Raises:
        ConfigError: one is given twice.
        ModelError: none is given, and there is no default one.
    """
    names_of(models or ())
    return list(models) if models else [default_model("lm", "ngram")]


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return what models are called.

    Raises:
        ConfigError: one is given twice.
    """
    names = [str(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} is given twice", hint="name each model once")
    return names


def parse_weights(text: str | None, num_models: int) -> list[float] | None:
    """Return the weights of `--weights`, None when it is not given.

    Raises:
        ConfigError: no numbers, weights of one model, or no distribution over the models.
    """
    if text is None:
        return None
    from seqtool.lm.mixture.model import check_weights

    if num_models < 2:
        hint = "name another model with -m, or drop it"
        raise ConfigError("--weights is for a mixture", hint=hint)
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError as error:
        what = f"--weights is {text!r}, but must be numbers"
        raise ConfigError(what, hint="write it as 0.3,0.7") from error
    return list(check_weights(weights, num_models))


def open_model(path: Path | Sequence[Path], kind: str, *, option: str = "-m") -> Any:
    """Open the parser, tagger, segmenter or classifier at `path`, or the parsers at several as one.

    `option` is that by which it was named.

    Raises:
        ModelError: there is no model, it is damaged, or it is of another kind; or several do not
            work together.
        ConfigError: one is named twice.
    """
    paths = [path] if isinstance(path, Path) else path
    names_of(paths)
    try:
        model = checkpoint.load(paths)
    except ModelError:
        for one in paths:
            if not checkpoint.is_foreign(one):
                checkpoint.find(one, KINDS[kind].headers)  # whose hint names models of this kind
        raise
    if not hasattr(model, KINDS[kind].ability):
        hint = f"choose one that {KINDS[kind].command} made, with {option}"
        raise ModelError(f"is no {kind}", hint=hint, path=paths[0])
    parsers = getattr(getattr(model, "parser", model), "parsers", ())
    if len(paths) > 1 and parsers:
        from seqtool.parsing.parser.vote import have_same_tags

        if not have_same_tags(parsers):
            note("some parsers were validated with gold tags, so all votes weigh alike")
    return model


def one_model(models: Sequence[Path] | None) -> Path | None:
    """Return the model of `-m`, if it is given, where one is taken.

    Raises:
        ConfigError: there are several, of which the last one would count.
    """
    if models and len(models) > 1:
        what = f"-m names {len(models)} models, and this command takes one"
        raise ConfigError(what, hint="give one, and the command again with each of the others")
    return models[0] if models else None


def note_unknown(model: Any, sentences: Iterable[Sentence], path: Path) -> None:
    """Say so where a parser does not know the words or tags of sentences."""
    from seqtool.parsing.unknown_words import UnknownWords

    known = getattr(model, "known", None)
    if known is None:
        return
    unknown = UnknownWords()
    unknown.add(sentences, known)
    for warning in unknown.warnings(known):
        note(f"warning: {path}: {warning}")


def note_beam(parser: Any, beam: int, paths: Sequence[Path]) -> None:
    """Say on stderr where a beam is asked of a parser that has none."""
    if beam > 1 and not parser.has_beam:
        names = ", ".join(map(str, paths))
        note(f"{names}: finds a tree without a beam, so --beam changes nothing")
