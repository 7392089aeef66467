"""`seqtool generate` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_models import UNIGRAM_ARPA, chain, random_bigrams, use_toys, word_tokenizer

Run = Callable[..., Any]
WORDS = ["the", "old", "man", "sleeps"]


@pytest.fixture(autouse=True)
def workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give a model that writes one sentence (certain), and one of many."""
    monkeypatch.chdir(tmp_path)
    models = {
        "certain": lambda: chain(word_tokenizer(WORDS), "the old man sleeps"),
        "varied": lambda: random_bigrams(word_tokenizer(WORDS), 3),
    }
    use_toys(monkeypatch, models)


def test_one_text(seqtool: Run) -> None:
    for how in (("--seed", "1"), ("--beam", "2"), ("--temperature", "0")):
        result = seqtool("generate", "--prompt", "the old", "-m", "certain", *how)
        assert (result.code, result.stdout, result.stderr) == (0, "the old man sleeps\n", "")
    words = ("-m", "varied", "--max-tokens", 7)
    greedy = seqtool("generate", *words, "--temperature", 0)
    assert greedy.stdout == seqtool("generate", *words, "--beam", 1).stdout


def test_text_comes_token_by_token(root: Path) -> None:
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    words = ("generate", "-m", "x.arpa", "--no-stop", "--max-tokens", str(10**9), "--seed", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "seqtool", *words],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert len(process.stdout.read(20)) == 20  # long before the end
    process.kill()
    process.communicate()


@pytest.mark.parametrize("text", ["the old\n", "\ufeffthe old\r\n"])
def test_a_prompt_from_stdin(seqtool_process: Run, tmp_path: Path, text: str) -> None:
    Path("x.arpa").write_text(UNIGRAM_ARPA)
    words = ("generate", "--prompt", "-", "-m", "x.arpa", "--beam", "2", "--allow-unknown")
    result = seqtool_process(*words, input=text.encode(), cwd=tmp_path)
    assert (result.code, result.stdout.startswith("the old")) == (0, True)
    wrong = seqtool_process(*words, input=b"caf\xe9", cwd=tmp_path)
    assert wrong.stderr.splitlines()[0] == "error: the prompt is not valid UTF-8"


def test_several_texts(seqtool: Run) -> None:
    words = ("generate", "-m", "varied", "--num", 4, "--max-tokens", 6)
    first = seqtool(*words)
    seed = first.stderr.split()[1]
    again = seqtool(*words, "--seed", seed)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    content = json.loads(seqtool(*words, "--seed", seed, "--json").stdout)
    assert list(content) == ["prompt", "samples"]
    assert [sample["text"] for sample in content["samples"]] == first.stdout.splitlines()
    assert list(content["samples"][0]) == ["text", "tokens", "log10_probability"]
    # those of several lines stand apart
    words = ("generate", "-m", "varied", "--num", 3, "--max-tokens", 30, "--seed", 5, "--no-stop")
    texts = [s["text"] for s in json.loads(seqtool(*words, "--json").stdout)["samples"]]
    assert seqtool(*words).stdout == "\n\n".join(texts) + "\n"


@pytest.mark.parametrize(
    ("arguments", "words", "advice"),
    [
        ("--prompt odl", "outside the model's vocabulary", "--allow-unknown"),
        ("--prompt The", "'The'", "lower case"),
        ("--prompt </s>", "the special symbol </s>", ""),
        ("--beam 3 --top-k 2", "beam search draws nothing by chance", ""),
        ("--temperature 0 --top-k 5", "temperature 0 draws nothing by chance", ""),
        ("--next 3 --num 2", "--next writes no text", "--next"),
        ("--weights 1", "--weights is for a mixture", "-m"),
        ("-m varied --weights 1,1", "the weights sum to 2", ""),
        ("-m none", "no such model", ""),
    ],
)
def test_mistakes(refused: Callable[..., str], arguments: str, words: str, advice: str) -> None:
    assert advice in refused(f"generate -m certain {arguments}", words)
