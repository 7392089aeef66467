"""One language model or several: the options that the commands share, and what is shown of them."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqtool.cli.options import default_model

if TYPE_CHECKING:
    from seqtool.language_model import LanguageModel, LMEvaluation
    from seqtool.mixture.weights import MixtureEvaluation, Tuning

ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "-m",
        "--model",
        metavar="MODEL",
        help="A language model, or an ARPA file; several (-m A -m B) are mixed. "
        "runs/lm by default, else runs/ngram.",
        show_default=False,
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="W,W...",
        help="The share of each model in a mixture, as 0.3,0.7; equal if not given.",
    ),
]


def parse_weights(text: str | None, num_models: int) -> list[float] | None:
    """Return the weights of `--weights`, None when it is not given.

    Raises:
        ConfigError: no numbers, weights of one model, or no distribution over the models.
    """
    if text is None:
        return None
    from seqtool.errors import ConfigError
    from seqtool.mixture.model import check_weights

    if num_models < 2:
        raise ConfigError(
            "--weights is for a mixture", hint="name another model with -m, or drop it"
        )
    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--weights is {text!r}, but must be numbers", hint="write it as 0.3,0.7"
        ) from error
    return list(check_weights(weights, num_models))


def open_models(
    paths: Sequence[Path], weights: Sequence[float] | None, *, device: str, threads: int | None
) -> LanguageModel:
    """Open a model, or several as their mixture.

    Raises:
        ModelError: a model that cannot be opened, or models that do not fit together.
    """
    from seqtool.cli.models import open_language_model

    models = [open_language_model(path, device=device, threads=threads) for path in paths]
    if len(models) == 1:
        return models[0]
    from seqtool.mixture.model import MixedModel

    return MixedModel(models, weights, names=[str(path) for path in paths])


def chosen_models(models: Sequence[Path] | None) -> list[Path]:
    """Return the models of `-m`, or the default one."""
    return list(models) if models else [default_model("lm", "ngram")]


def check_mixing(
    models: Sequence[Path],
    texts: Sequence[str],
    weights: str | None,
    *,
    tune: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Refuse options of mixing that do not go together, before any model is opened.

    Raises:
        ConfigError: options that exclude one another, or that are for a mixture only.
        DataError: a text is not there, when there is one to tune on first.
        OutputError: the mixture would replace something.
    """
    from seqtool.errors import ConfigError

    given = {"--tune": tune is not None, "--save-mixture": output is not None}
    for name in (name for name, is_given in given.items() if is_given and len(models) < 2):
        raise ConfigError(f"{name} is for a mixture", hint="name another model with -m, or drop it")
    if tune is not None and weights is not None:
        raise ConfigError(
            "--tune fits the weights that --weights gives", hint="drop one of the two"
        )
    if tune is not None:
        from seqtool.corpora.text import find_files

        find_files([name for name in (*texts, tune) if not (Path(name) / "corpus.json").is_file()])
    if output is None:
        if force:
            raise ConfigError("--force is for --save-mixture", hint="drop it")
        return
    from seqtool import checkpoint
    from seqtool.mixture.directory import check_apart

    check_apart(output, models)
    hint = "replace it with --force, or choose another directory"
    checkpoint.check_output(output, force=force, hint=hint)


def save_measured(
    output: Path,
    mixture: MixtureEvaluation,
    models: Sequence[Path],
    texts: Sequence[str],
    tuning: Tuning | None,
) -> None:
    """Write the mixture of these models with what was measured of it."""
    from seqtool.mixture.directory import save_model

    scores = {"perplexity": mixture.result.perplexity}
    data: dict[str, object] = {"measured_on": list(texts)}
    if tuning is not None:
        scores["tuning_perplexity"] = tuning.perplexity
        data |= {"tuned_on": tuning.text, "tuning_tokens": tuning.tokens}
    save_model(
        output,
        mixture.model,
        models,
        scores={name: value for name, value in scores.items() if math.isfinite(value)},
        data=data,
        command=shlex.join(["seqtool", *sys.argv[1:]]),
    )


def mixture_rows(mixture: MixtureEvaluation, tuning: Tuning | None) -> list[tuple[str, str]]:
    """Return a row per part, its weight and what it is worth alone, and one about the tuning."""
    rows = [
        (f"  weight {weight:.4f}", f"{name} ({part.kind}): perplexity {perplexity:,.2f} alone")
        for weight, name, part, perplexity in zip(
            mixture.model.weights,
            mixture.model.names,
            mixture.model.parts,
            mixture.perplexities,
            strict=True,
        )
    ]
    if tuning is not None:
        rows.append(
            (
                "  tuned on",
                f"{tuning.text}: {tuning.tokens:,} tokens, perplexity {tuning.perplexity:,.2f}",
            )
        )
    return rows


def tuning_remarks(result: LMEvaluation, texts: Sequence[str], tuning: Tuning | None) -> list[str]:
    """Return what to say when the weights were fitted on what is measured, or on too little."""
    if tuning is None:
        return []
    remarks = []
    is_same = Path(tuning.text).resolve() in [Path(text).resolve() for text in texts]
    if is_same and result.split == tuning.split:
        remarks.append(
            "the weights were fitted on the very text that is measured, so the perplexity is a "
            "little too good"
        )
    if tuning.fitted.impossible:
        remarks.append(
            f"{tuning.fitted.impossible:,} tokens of the tuning text have no probability under any "
            "of the models; the weights were fitted on the others"
        )
    return remarks
