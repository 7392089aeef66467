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
    from seqtool.cli.adapting_options import Adapting
    from seqtool.lm.mixture.weights import MixtureEvaluation, Tuning
    from seqtool.lm.neural.dynamic import DynamicTuning
    from seqtool.lm.protocol import LanguageModel, LMEvaluation

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
    from seqtool.core.errors import ConfigError
    from seqtool.lm.mixture.model import check_weights

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
    return mixed(open_parts(paths, device=device, threads=threads), paths, weights)


def open_parts(paths: Sequence[Path], *, device: str, threads: int | None) -> list[LanguageModel]:
    """Open models.

    Raises:
        ModelError: a model that cannot be opened.
    """
    from seqtool.cli.models import open_language_model

    return [open_language_model(path, device=device, threads=threads) for path in paths]


def mixed(
    models: Sequence[LanguageModel],
    paths: Sequence[Path],
    weights: Sequence[float] | None,
    adapting: Adapting | None = None,
) -> LanguageModel:
    """Return one model as it is, several as their mixture, and either with a cache if it is wanted.

    Args:
        models: one or more.
        paths: where they are.
        weights: of the models, among themselves; equal ones when not given.
        adapting: the settings of the cache and its weight.

    Raises:
        ConfigError: theta is given for models without states, or there is a cache already.
        ModelError: the models do not fit together.
    """
    names = [str(path) for path in paths]
    if adapting is None or adapting.cache is None:
        if len(models) == 1:
            return models[0]
        from seqtool.lm.mixture.model import MixedModel

        return MixedModel(models, weights, names=names)
    from seqtool.core.errors import ConfigError
    from seqtool.lm.mixture.cache import CacheModel
    from seqtool.lm.mixture.config import WEIGHT
    from seqtool.lm.mixture.model import MixedModel, source_of

    source, name = source_of(models, names)
    cache = CacheModel(source, adapting.cache.chosen(), name=name)
    if adapting.cache.theta and not cache.has_states:
        raise ConfigError(
            "--cache-theta compares the states of a network, but there is none",
            hint="drop it: the cache then counts words",
        )
    share = WEIGHT if adapting.weight is None else adapting.weight
    rest = weights or [1 / len(models)] * len(models)
    return MixedModel(
        [*models, cache],
        [*((1 - share) * weight for weight in rest), share],
        names=[*names, f"cache of {name}"],
    )


def chosen_models(models: Sequence[Path] | None) -> list[Path]:
    """Return the models of `-m`, or the default one."""
    return list(models) if models else [default_model("lm", "ngram")]


def check_mixing(
    models: Sequence[Path],
    texts: Sequence[str],
    weights: str | None,
    adapting: Adapting,
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
    from seqtool.core.errors import ConfigError

    is_mixture = len(models) > 1 or adapting.cache is not None
    given = {
        "--tune": tune is not None and not adapting.dynamic_is_free,
        "--save-mixture": output is not None,
    }
    for name in (name for name, is_given in given.items() if is_given and not is_mixture):
        raise ConfigError(f"{name} is for a mixture", hint="name another model with -m, or drop it")
    for name, value in (("--weights", weights), ("--cache-lambda", adapting.weight)):
        if tune is not None and value is not None:
            raise ConfigError(
                f"--tune fits the weights that {name} gives", hint="drop one of the two"
            )
    if output is not None and adapting.dynamic is not None:
        raise ConfigError(
            "what --dynamic learns from a text is not kept, so it cannot be saved",
            hint="drop --dynamic, or --save-mixture",
        )
    if tune is not None:
        from seqtool.core.reading import find_files

        find_files([name for name in (*texts, tune) if not (Path(name) / "corpus.json").is_file()])
    if output is None:
        if force:
            raise ConfigError("--force is for --save-mixture", hint="drop it")
        return
    from seqtool.core import checkpoint
    from seqtool.lm.mixture.model import check_apart

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
    from seqtool.lm.mixture.model import save_model

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
    from seqtool.lm.protocol import adaptations_of

    rows = []
    for weight, name, part, perplexity, impossible in zip(
        mixture.model.weights,
        mixture.model.names,
        mixture.model.parts,
        mixture.perplexities,
        mixture.impossible,
        strict=True,
    ):
        if part.kind == "cache":
            share = 1 - impossible / mixture.result.tokens
            worth = f"{name}: has {share:.1%} of the tokens"
        else:
            is_dynamic = any(found.kind == "dynamic" for found in adaptations_of(part))
            kind = f"{part.kind}, dynamic" if is_dynamic else part.kind
            worth = f"{name} ({kind}): perplexity {perplexity:,.2f} alone"
        rows.append((f"  weight {weight:.4f}", worth))
    if tuning is not None:
        rows.append(
            (
                "  tuned on",
                f"{tuning.text}: {tuning.tokens:,} tokens, perplexity {tuning.perplexity:,.2f}",
            )
        )
    return rows


def tuning_remarks(
    result: LMEvaluation,
    texts: Sequence[str],
    tuning: Tuning | None,
    dynamic: Sequence[DynamicTuning] = (),
) -> list[str]:
    """Return what to say when something was fitted on what is measured, or on too little."""
    fitted_on = [(tuning.text, tuning.split)] if tuning is not None else []
    fitted_on += [(found.text, found.split) for found in dynamic]
    measured = [Path(text).resolve() for text in texts]
    remarks = []
    if any(Path(text).resolve() in measured and split == result.split for text, split in fitted_on):
        what = "weights were" if tuning is not None and not tuning.num_tried else "settings were"
        remarks.append(
            f"the {what} fitted on the very text that is measured, so the perplexity is a "
            "little too good"
        )
    if tuning is not None and tuning.fitted.impossible:
        remarks.append(
            f"{tuning.fitted.impossible:,} tokens of the tuning text have no probability under any "
            "of the models; the weights were fitted on the others"
        )
    return remarks
