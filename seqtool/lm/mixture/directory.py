"""A mixture on disk: a model directory that refers to its parts.

It has no weights of its own: `model.json` names the parts by their paths, relative to the
directory, with the weight of each and the SHA-256 of its header (of the whole file, if it is one).
So a part that was moved, or trained again, is found out when the mixture is opened. A cache is no
part on disk: its settings stand among the parts, and the part that it is over is found again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqtool.core import checkpoint, storage
from seqtool.core.config import from_dict, to_dict
from seqtool.core.errors import ConfigError, ModelError, OutputError
from seqtool.lm.mixture.cache import CacheModel, source_of
from seqtool.lm.mixture.config import CacheConfig
from seqtool.lm.mixture.model import MixedModel
from seqtool.lm.protocol import LanguageModel

_MIX_AGAIN = "mix the models again with: seqtool eval-ppl --save-mixture"


def save_model(
    path: str | Path,
    model: MixedModel,
    parts: Sequence[str | Path],
    *,
    scores: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    command: str = "",
) -> None:
    """Write a mixture as a model directory that refers to its parts.

    Args:
        path: the directory, replaced if it is there.
        model: the mixture.
        parts: where each part but a cache is: a model directory or an ARPA file.
        scores: what was measured.
        data: what the weights were fitted on.
        command: the command that made it.

    Raises:
        OutputError: the directory is, or holds, one of the parts.
    """
    check_apart(path, parts)
    output = Path(path).resolve()
    headers = [checkpoint.read_header(part) for part in parts if not Path(part).is_file()]
    paths = iter(parts)
    described = {
        str(number): _describe(part, weight, paths, output)
        for number, (part, weight) in enumerate(
            zip(model.parts, model.weights, strict=True), start=1
        )
    }
    versions = {name: version for header in headers for name, version in header.versions.items()}
    header = checkpoint.Header(
        kind=MixedModel.kind,
        config={"parts": described},
        tokenizer=model.tokenizer.describe(),
        scores=dict(scores or {}),
        data=dict(data or {}),
        command=command,
        num_parameters=sum(header.num_parameters for header in headers),
        versions=versions,
    )
    checkpoint.save(path, header, _card(header), lambda directory: None)


def _describe(
    part: LanguageModel, weight: float, paths: Iterator[str | Path], output: Path
) -> dict[str, Any]:
    if isinstance(part, CacheModel):
        return {"kind": part.kind, "weight": weight, "settings": to_dict(part.config)}
    path = Path(next(paths))
    return {
        "path": _reference(path.resolve(), output),
        "kind": part.kind,
        "weight": weight,
        "sha256": _sum_of_part(path),
    }


def check_apart(path: str | Path, parts: Sequence[str | Path]) -> None:
    """Refuse to write a mixture over one of its parts.

    Raises:
        OutputError: the directory is, or holds, one of the parts.
    """
    output = Path(path).resolve()
    for part in parts:
        if Path(part).resolve().is_relative_to(output):
            raise OutputError(
                "a part of the mixture is there, and a mixture only refers to its parts",
                hint="choose another directory",
                path=path,
            )


def load_model(directory: Path, header: checkpoint.Header, *, device: str = "cpu") -> MixedModel:
    """Open a mixture and all of its parts.

    Raises:
        ModelError: a part is missing or damaged, or is not what was mixed.
    """
    models: list[LanguageModel] = []
    names: list[str] = []
    try:
        recorded = list(header.config["parts"].values())
        references = [
            (str(part["path"]), str(part["sha256"])) for part in recorded if part["kind"] != "cache"
        ]
        weights = [float(part["weight"]) for part in recorded]
        caches = [
            from_dict(CacheConfig, part["settings"]) for part in recorded if part["kind"] == "cache"
        ]
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise _damaged(directory) from error
    for reference, sum_then in references:
        path = _shown((directory / reference).resolve())
        if not storage.present(path).exists():
            raise ModelError(
                "this part of the mixture is not there",
                hint=f"put it back, or {_MIX_AGAIN}",
                path=path,
            )
        if _sum_of_part(path) != sum_then:
            raise ModelError(
                "this part of the mixture has changed since it was mixed",
                hint=_MIX_AGAIN,
                path=path,
            )
        models.append(checkpoint.load(path, device=device))
        names.append(str(path))
    try:
        for config in caches:
            source, name = source_of(models, names)
            models.append(CacheModel(source, config, name=name))
            names.append(f"cache of {name}")
        return MixedModel(models, weights, names=names)
    except (ConfigError, IndexError) as error:
        raise _damaged(directory) from error


def _damaged(directory: Path) -> ModelError:
    return ModelError(
        "damaged model header",
        hint=_MIX_AGAIN,
        path=directory / checkpoint.HEADER,
    )


def _sum_of_part(path: Path) -> str:
    """Return the SHA-256 of a model's header, which holds the sums of its files, or of a file."""
    return storage.sum_of(path if path.is_file() else checkpoint.find(path) / checkpoint.HEADER)


def _reference(part: Path, output: Path) -> str:
    try:
        return Path(os.path.relpath(part, output)).as_posix()
    except ValueError:  # on another drive
        return part.as_posix()


def _shown(path: Path) -> Path:
    """Return a path as a user of the current directory would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _shown_part(part: dict[str, Any]) -> str:
    """Return the path of a part, or the settings of a cache."""
    if "settings" not in part:
        return str(part["path"])
    return ", ".join(f"{name} {value:g}" for name, value in part["settings"].items())


def _card(header: checkpoint.Header) -> str:
    """Return the README.md of a mixture: its parts, their weights, its scores and its command."""
    parts = [
        (_shown_part(part), part["kind"], f"{part['weight']:.4f}")
        for part in header.config["parts"].values()
    ]
    return checkpoint.compose(
        header,
        "Mixture of language models",
        f"The probabilities of {len(parts)} models, interpolated. They stay where they are: "
        "keep them there.",
        checkpoint.table(("part", "kind", "weight"), parts),
        checkpoint.scores_table(header),
        maker="the Python library",
        use=(
            "seqtool eval-ppl TEXT -m THIS_DIRECTORY",
            'seqtool generate --prompt "..." -m THIS_DIRECTORY',
        ),
    )
