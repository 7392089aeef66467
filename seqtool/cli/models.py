"""Opening a model for a command, without torch where the model needs none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from seqtool.lm.protocol import LanguageModel
    from seqtool.parsing.parser.model import Parser
    from seqtool.parsing.segmenter.model import Segmenter
    from seqtool.parsing.tagger.model import Tagger


def open_language_model(path: Path, *, device: str, threads: int | None) -> LanguageModel:
    """Open the model at `path` on a device ("auto" chooses one).

    Raises:
        ModelError: there is no model, it is damaged, or it is no language model.
        ConfigError: there is no such device, or an impossible number of threads.
    """
    from seqtool.core import checkpoint
    from seqtool.core.errors import ModelError

    # a model made with torch is neural, or a mixture with a neural part
    if not path.is_file() and "torch" in checkpoint.read_header(path).versions:
        from seqtool.training import hardware

        device = hardware.choose_device(device)
        hardware.set_threads(threads)
        hardware.prepare_device(device)
    model = checkpoint.load(path, device=device)
    if not hasattr(model, "next_log_probs"):
        raise ModelError(
            "is no language model", hint="choose one that train-lm made, with -m", path=path
        )
    return cast("LanguageModel", model)


def open_parser(path: Path) -> Parser:
    """Open the parser at `path`.

    Raises:
        ModelError: there is no model, it is damaged, or it is no parser.
    """
    from seqtool.core import checkpoint
    from seqtool.core.errors import ModelError

    model = checkpoint.load(path)
    if not hasattr(model, "parse_stream"):
        raise ModelError(
            "is no parser", hint="choose one that train-parser made, with -m", path=path
        )
    return cast("Parser", model)


def open_tagger(path: Path) -> Tagger:
    """Open the tagger at `path`.

    Raises:
        ModelError: there is no model, it is damaged, or it is no tagger.
    """
    from seqtool.core import checkpoint
    from seqtool.core.errors import ModelError

    model = checkpoint.load(path)
    if not hasattr(model, "tag_stream"):
        raise ModelError(
            "is no tagger", hint="choose one that train-tagger made, with -m", path=path
        )
    return cast("Tagger", model)


def open_segmenter(path: Path) -> Segmenter:
    """Open the segmenter at `path`.

    Raises:
        ModelError: there is no model, it is damaged, or it is no segmenter.
    """
    from seqtool.core import checkpoint
    from seqtool.core.errors import ModelError

    model = checkpoint.load(path)
    if not hasattr(model, "segment"):
        raise ModelError(
            "is no segmenter", hint="choose one that train-segmenter made, with -m", path=path
        )
    return cast("Segmenter", model)
