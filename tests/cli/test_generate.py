"""`seqtool generate` as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_models import BigramModel, chain, random_bigrams, word_tokenizer

Run = Callable[..., Any]
WORDS = ["the", "old", "man", "sleeps"]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[BigramModel], None]:
    """Let every model be this one."""

    def set_model(model: BigramModel) -> None:
        monkeypatch.setattr("seqtool.lm.mixture.model.open_language_model", lambda *_, **__: model)

    return set_model


@pytest.fixture
def certain(use: Callable[[BigramModel], None]) -> None:
    """Use a model that writes one sentence."""
    use(chain(word_tokenizer(WORDS), "the old man sleeps"))


@pytest.fixture
def varied(use: Callable[[BigramModel], None]) -> None:
    """Use a model that writes many sentences."""
    use(random_bigrams(word_tokenizer(WORDS), 3))


@pytest.mark.usefixtures("certain")
def test_one_text(seqtool: Run) -> None:
    result = seqtool("generate", "--prompt", "the old", "-m", "toy", "--seed", "1")
    assert (result.code, result.stdout, result.stderr) == (0, "the old man sleeps\n", "")


@pytest.mark.usefixtures("certain")
def test_text_comes_token_by_token(seqtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[str] = []
    monkeypatch.setattr("seqtool.cli.generate.echo", lambda text="", **_: parts.append(text))
    seqtool("generate", "--prompt", "the", "-m", "toy", "--seed", "1")
    assert parts == ["the", " old", " man", " sleeps", ""]


@pytest.mark.usefixtures("certain")
@pytest.mark.parametrize("given", ["the old\n", "\ufeffthe old\r\n"])
def test_a_prompt_from_stdin(seqtool: Run, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given.encode())))
    result = seqtool("generate", "--prompt", "-", "-m", "toy", "--beam", "2")
    assert (result.code, result.stdout, result.stderr) == (0, "the old man sleeps\n", "")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"caf\xe9")))
    wrong = seqtool("generate", "--prompt", "-", "-m", "toy")
    assert (wrong.code, wrong.stdout) == (1, "")
    assert wrong.stderr.splitlines()[0] == "error: the prompt is not valid UTF-8"


@pytest.mark.usefixtures("varied")
def test_several_texts(seqtool: Run) -> None:
    arguments = ("generate", "-m", "toy", "--num", 4, "--max-tokens", 6, "--seed", 5)
    lines = seqtool(*arguments).stdout.splitlines()
    assert len(lines) == 4
    content = json.loads(seqtool(*arguments, "--json").stdout)
    assert list(content) == ["prompt", "samples"]
    assert [sample["text"] for sample in content["samples"]] == lines
    assert list(content["samples"][0]) == ["text", "tokens", "log10_probability"]
    assert content["samples"][0]["log10_probability"] < 0


@pytest.mark.usefixtures("varied")
def test_several_texts_of_several_sentences(seqtool: Run) -> None:
    arguments = ("generate", "-m", "toy", "--num", 3, "--max-tokens", 30, "--seed", 5, "--no-stop")
    texts = [s["text"] for s in json.loads(seqtool(*arguments, "--json").stdout)["samples"]]
    assert seqtool(*arguments).stdout == "\n\n".join(texts) + "\n"
    assert all("\n" in text for text in texts)


@pytest.mark.usefixtures("varied")
def test_a_new_seed_is_told(seqtool: Run) -> None:
    result = seqtool("generate", "-m", "toy", "--num", 3)
    seed = result.stderr.split()[1]
    again = seqtool("generate", "-m", "toy", "--num", 3, "--seed", seed)
    assert again.stdout == result.stdout
    assert again.stderr == ""


@pytest.mark.usefixtures("varied")
def test_beam_and_greedy(seqtool: Run) -> None:
    greedy = seqtool("generate", "-m", "toy", "--temperature", 0, "--max-tokens", 7)
    beam = seqtool("generate", "-m", "toy", "--beam", 1, "--max-tokens", 7)
    assert greedy.stdout == beam.stdout
    assert greedy.stderr == beam.stderr == ""


def test_no_model(seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = seqtool("generate", "--prompt", "the")
    assert (result.code, result.stdout) == (1, "")
    assert "`seqtool train-lm`" in result.stderr.splitlines()[1]


@pytest.mark.usefixtures("certain")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", "the odl man"], "error: the prompt has words outside the model's vocabulary"),
        (["--prompt", "the </s>"], "error: the prompt contains the special symbol </s>"),
        (["--num", 0], "error: num is 0"),
        (["--temperature", -1], "error: temperature is -1"),
        (["--top-p", 0], "error: top_p is 0"),
        (["--max-tokens", 0], "error: max_tokens is 0"),
        (["--beam", 3, "--top-k", 2], "error: beam search draws nothing by chance"),
        (["--beam", 3, "--num", 4], "error: num is 4"),
        (["--beam", 3, "--seed", 4], "error: --seed is of chance"),
        (["--temperature", 0, "--top-k", 5], "error: temperature 0 draws nothing by chance"),
        (["--temperature", 0, "--seed", 4], "error: --seed is of chance, and temperature 0"),
        (["--beam", 3, "--length-penalty", 160], "error: length_penalty is 160"),
    ],
)
def test_bad_options(seqtool: Run, arguments: list[object], message: str) -> None:
    result = seqtool("generate", "-m", "toy", *arguments)
    assert (result.code, result.stdout) == (1, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(message)
    assert hint.startswith("hint: ")


@pytest.mark.usefixtures("certain")
def test_unknown_words_on_demand(seqtool: Run) -> None:
    result = seqtool("generate", "-m", "toy", "--prompt", "qqqq", "--allow-unknown", "--seed", 0)
    assert result.code == 0
    assert result.stdout.startswith("qqqq")


def test_a_prompt_with_capitals(seqtool: Run, certain: None) -> None:
    result = seqtool("generate", "--prompt", "The Old", "-m", "toy")
    assert result.code == 1
    error, hint = result.stderr.splitlines()
    assert error.endswith("vocabulary: 'The', 'Old'")
    assert hint.startswith("hint: type the prompt in lower case")
    # of a word that lower case would not make known, it would be no help
    assert "lower case" not in seqtool("generate", "--prompt", "The Elm", "-m", "toy").stderr
