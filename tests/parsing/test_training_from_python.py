"""Every model is trained from Python in one way, and can be used at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parsing.parser.tiny import write_treebank

import seqtool

QUICK = {"epochs": 1, "precision": "float32"}
SETTINGS: dict[str, Any] = {
    "model": {"lexical_size": 4, "tag_size": 4, "label_size": 4, "hidden_size": 8},
    "training": QUICK,
}


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    return write_treebank(tmp_path / "t.conllu", 30)


def test_a_parser_is_trained_shown_and_used(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = seqtool.train_parser(treebank, tmp_path / "p", SETTINGS, device="cpu", threads=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training for" in shown.err
    assert "finished after" in shown.err
    assert isinstance(trained.model, seqtool.Parser)
    assert trained.model.config.model.hidden_size == 8
    # what is not given is as in the default preset
    default = seqtool.ParserConfig.__dataclass_fields__["learning"].default_factory()  # type: ignore[misc]
    assert type(trained.model.config.learning) is type(default)
    (sentence, *_) = trained.model(treebank)
    assert sentence.root is not None


def test_progress_is_shown_if_wanted(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Any] = []
    options: Any = {"device": "cpu", "threads": 1, "force": True}
    for more, is_shown in (
        ({"progress": False}, False),
        ({"on_event": heard.append}, False),
        ({"on_event": heard.append, "progress": True}, True),
    ):
        num = len(heard)
        seqtool.train_parser(treebank, tmp_path / "p", SETTINGS, **options, **more)
        assert bool(capsys.readouterr().err) == is_shown
        assert (len(heard) > num) == ("on_event" in more)


def test_settings_have_names(treebank: Path, tmp_path: Path) -> None:
    output = tmp_path / "p"
    for train, config, message in (
        (seqtool.train_parser, {"model": {"hiden": 3}}, "hiden"),
        (seqtool.train_parser, 3, "the settings are 3"),
        (seqtool.train_parser, "slow", "no preset is called 'slow'"),
        (seqtool.train_pipeline, "slow", "no preset is called 'slow'"),
        (seqtool.train_lm, "slow", "slow"),
    ):
        with pytest.raises(seqtool.ConfigError, match=message):
            train(treebank, output, config)  # type: ignore[operator]
    assert not output.exists()
