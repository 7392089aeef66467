"""The text that a model knows as held out: which one it is, and that it is never another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqtool.core.errors import ConfigError, DataError, ModelError
from seqtool.core.reading import STDIN
from seqtool.lm.held_out import held_out_text
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram
from seqtool.text.datasets import sample_text
from seqtool.text.prepared import PrepareConfig, prepare

Run = Callable[..., Any]
TEXT = "a b\nb a\na\n" * 40


@pytest.fixture(autouse=True)
def in_a_folder_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    Path("text/train.txt").write_text(TEXT)
    Path("text/valid.txt").write_text("a\n")
    Path("text/test.txt").write_text("b b\n")


def train(inputs: str | Path, output: str = "m", **options: Any) -> Path:
    train_ngram(inputs, output, NgramConfig(order=2), threads=1, **options)
    return Path(output)


def test_the_files_beside_the_training_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = train("text")
    found = held_out_text([model])
    assert (found.paths, found.split, found.is_corpus) == ((Path("text/test.txt"),), "test", False)
    assert held_out_text([model], split="valid").paths == (Path("text/valid.txt"),)
    # a project that is moved as a whole, and read from elsewhere
    Path("moved").mkdir()
    for name in ("m", "text"):
        shutil.move(name, "moved")
    assert held_out_text([Path("moved/m")]).paths == (Path("moved/text/test.txt"),)
    monkeypatch.chdir("moved/m")
    assert held_out_text([Path()]).paths == (Path("../text/test.txt"),)
    Path("../text/test.txt").unlink()
    with pytest.raises(DataError, match="no longer there") as caught:
        held_out_text([Path()])
    assert "eval-ppl TEXT" in caught.value.hint


def test_without_a_test_part_it_is_the_validation_part() -> None:
    train("text", "other", arpa="x.arpa")
    with pytest.raises(ModelError, match="an ARPA file does not say"):
        held_out_text([Path("x.arpa")])
    Path("text/test.txt").unlink()
    found = held_out_text([train("text")])
    assert (found.paths, found.split) == ((Path("text/valid.txt"),), "valid")
    with pytest.raises(ModelError, match="no test part of its own corpus"):
        held_out_text([Path("m")], split="test")


@pytest.mark.parametrize("trained_on", ["text/train.txt", "all of a corpus", STDIN])
def test_without_any_part_it_is_an_error(trained_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if trained_on == "all of a corpus":
        prepare(["text/train.txt"], "corpus", PrepareConfig(split=(100.0,)))
        trained_on = "corpus"
    with open("text/train.txt") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        model = train(trained_on)
    with pytest.raises(ModelError, match="no held-out part of its own corpus") as caught:
        held_out_text([model])
    assert caught.value.hint == "name a text to measure it on: seqtool eval-ppl TEXT -m m"


def test_the_prepared_corpus() -> None:
    prepare(["text/train.txt"], "corpora/c", PrepareConfig(split=(80.0, 10.0, 10.0)))
    found = held_out_text([train("corpora/c")])
    assert (found.paths, found.split, found.is_corpus) == ((Path("corpora/c"),), "test", True)
    # one that was prepared anew is another one, even in the same place
    prepare(["text/train.txt"], "corpora/c", PrepareConfig(split=(70.0, 15.0, 15.0)), force=True)
    with pytest.raises(DataError, match="has changed since the model was trained"):
        held_out_text([Path("m")])
    shutil.rmtree("corpora")
    with pytest.raises(DataError, match="corpus that the model was trained on is no longer there"):
        held_out_text([Path("m")])


def test_models_of_one_text_have_it_together() -> None:
    prepare(["text"], "corpus")
    models = [train("text", "first"), train("corpus", "second")]
    # the files are the same, whether they were prepared or not
    assert held_out_text(models).paths == (Path("text/test.txt"),)
    assert held_out_text(models[::-1]).paths == (Path("corpus"),)
    Path("other").mkdir()
    for name in ("train", "valid", "test"):
        Path("other", f"{name}.txt").write_text(f"a {name}\n" * 20)
    other = train("other", "third")
    for name, seed in (("one", 0), ("same", 0), ("another", 1)):  # parts are drawn by seed
        prepare(["text/train.txt"], name, PrepareConfig(seed=seed))
    one, same, another = (train(name, f"m-{name}") for name in ("one", "same", "another"))
    assert held_out_text([one, same]).paths == (Path("one"),)
    with pytest.raises(ConfigError, match="not trained on the same corpus"):
        held_out_text([one, another])
    with pytest.raises(ConfigError, match="first and third were not trained on the same corpus"):
        held_out_text([models[0], other])


def test_a_mixture_has_that_of_its_parts(seqtool: Run) -> None:
    train("text", "first")
    train("text", "second")
    mixed = ("-m", "first", "-m", "second", "--tune", "text/valid.txt", "--save-mixture", "both")
    assert seqtool("eval-ppl", *mixed).code == 0
    assert held_out_text([Path("both")]).paths == (Path("text/test.txt"),)


def test_the_sample_is_for_models_of_the_sample() -> None:
    model = train(sample_text("en", "train"))
    assert held_out_text([model]).paths[0].resolve() == sample_text("en", "test").resolve()
    assert held_out_text([model], split="valid").split == "valid"


def test_eval_ppl_names_what_it_measures(seqtool: Run) -> None:
    train("text")
    result = seqtool("eval-ppl", "-m", "m")
    assert result.code == 0
    assert result.stderr == (
        "no TEXT given: measuring text/test.txt, which the model was not trained on\n"
    )
    assert result.stdout.startswith("text               text/test.txt: 1 sentence, 3 tokens ")
    named = json.loads(seqtool("eval-ppl", "text/test.txt", "-m", "m", "--json").stdout)
    own = json.loads(seqtool("eval-ppl", "-m", "m", "--json").stdout)
    assert (own["text"], own["split"]) == (["text/test.txt"], "test")
    assert own["log10_probability"] == named["log10_probability"]
    prepare(["text"], "corpus")
    train("corpus", "c")
    result = seqtool("eval-ppl", "-m", "c", "--split", "valid", "--json")
    assert "measuring the valid part of corpus, which" in result.stderr
    content = json.loads(result.stdout)
    assert (content["text"], content["split"], content["tokens"]) == (["corpus"], "valid", 2)
    learnt = seqtool("eval-ppl", "-m", "c", "--split", "train")
    assert "measuring the train part of corpus, which the model was trained on" in learnt.stderr
