"""Training from end to end: text to a model, and its copy as ARPA."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import seqtool
from seqtool import NgramConfig, evaluate_lm, prepare, train_ngram
from seqtool.core import checkpoint
from seqtool.core.errors import ConfigError, DataError, OutputError
from seqtool.lm.ngram.train import import_ngrams

TEXT = "a b a\nb a\n" * 20


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_maximum_likelihood_by_hand(text: Path, tmp_path: Path) -> None:
    # <s> goes on with a (20) and b (20); a with b (20) and </s> (40); b with a (40):
    # a b a </s> = 1/2 * 1/3 * 1 * 2/3 = 1/9 and b a </s> = 1/2 * 1 * 2/3 = 1/3 for 7 tokens,
    # so the perplexity is (1/27)^(-1/7) = 27^(1/7)
    config = NgramConfig(order=2, smoothing="maximum-likelihood")
    trained = train_ngram(text, tmp_path / "model", config, command="typed")
    assert (trained.num_tokens, trained.num_sentences) == (140, 40)
    assert (trained.num_unknown, trained.vocabulary_size) == (0, 4)
    assert trained.num_ngrams == 5 + 5
    assert trained.scores == {}
    assert set(trained.seconds) == {"reading", "counting", "estimating", "saving"}
    assert trained.total_seconds == sum(trained.seconds.values())
    model = seqtool.load(trained.path)
    assert evaluate_lm(model, text).perplexity == pytest.approx(27 ** (1 / 7), rel=1e-6)
    header = checkpoint.read_header(trained.path)
    assert (header.kind, header.command) == ("ngram", "typed")
    assert header.config["smoothing"] == "maximum-likelihood"


def test_a_folder_with_splits_is_trained_on_train_alone(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "train.txt").write_text(TEXT, encoding="utf-8")
    (folder / "valid.txt").write_text("b a c\n", encoding="utf-8")
    config = NgramConfig(order=2, smoothing="witten-bell")
    trained = train_ngram(folder, tmp_path / "model", config)
    assert trained.num_tokens == 140
    assert set(trained.scores) == {"valid_perplexity"}
    wanted = evaluate_lm(seqtool.load(trained.path), folder / "valid.txt").perplexity
    assert trained.scores["valid_perplexity"] == pytest.approx(wanted, rel=1e-12)
    # the same through a prepared corpus: the same ids, so the same model
    corpus = prepare([folder], tmp_path / "corpus")
    again = train_ngram(corpus.path, tmp_path / "again", config)
    assert again.scores["valid_perplexity"] == pytest.approx(wanted, rel=1e-12)
    weights = [path / checkpoint.WEIGHTS for path in (trained.path, again.path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_arpa_in_the_same_go_and_back(text: Path, tmp_path: Path) -> None:
    config = NgramConfig(order=3, smoothing="witten-bell", prune=(0, 0, 1))
    path = tmp_path / "x.arpa.gz"
    trained = train_ngram([text], tmp_path / "model", config, arpa=path, threads=1)
    assert trained.arpa == path
    assert gzip.decompress(path.read_bytes()).startswith(b"\\data\\\nngram 1=5\n")
    table, notes = import_ngrams(path, tmp_path / "imported")
    assert notes == []
    assert [len(level) for level in table.levels] == [
        order["ngrams"] for order in trained.statistics
    ]
    perplexities = [
        evaluate_lm(seqtool.load(model), text).perplexity
        for model in (trained.path, path, tmp_path / "imported")
    ]
    assert perplexities[1] == perplexities[2]
    assert perplexities[1] == pytest.approx(perplexities[0], rel=1e-6)
    assert checkpoint.read_header(tmp_path / "imported").data == {"imported_from": str(path)}


def test_nothing_is_read_when_the_output_is_refused(text: Path, tmp_path: Path) -> None:
    train_ngram(text, tmp_path / "model", NgramConfig(order=1))
    missing = tmp_path / "missing.txt"
    with pytest.raises(OutputError, match="exists already"):
        train_ngram(missing, tmp_path / "model")
    with pytest.raises(OutputError, match="the directory to write to is not there"):
        train_ngram(missing, tmp_path / "other", arpa=tmp_path / "no" / "x.arpa")
    inside = tmp_path / "model" / "corpus"
    prepare([text], inside)
    for names in ((["caf\udce9.txt"], "model"), (["text.txt"], "mod\udce9l")):
        with pytest.raises(DataError, match=r"is not UTF-8, so model.json cannot hold it"):
            train_ngram(*names)
    with pytest.raises(ConfigError, match=r"lies in .*model, which is to be replaced"):
        train_ngram(inside, tmp_path / "model", force=True)
    assert (inside / "corpus.json").is_file()
    with pytest.raises(DataError, match="no such file"):
        train_ngram(missing, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_model_of_characters_has_no_arpa_form(text: Path, tmp_path: Path) -> None:
    from seqtool.text.prepared import PrepareConfig

    corpus = prepare([text], tmp_path / "corpus", PrepareConfig(unit="char", split=(100.0,)))
    trained = train_ngram(corpus.path, tmp_path / "model", NgramConfig(order=3))
    assert math.isfinite(evaluate_lm(seqtool.load(trained.path), text).perplexity)
    with pytest.raises(ConfigError, match="the symbol ' ' holds a blank"):
        train_ngram(corpus.path, tmp_path / "more", NgramConfig(order=3), arpa=tmp_path / "x")
    assert not (tmp_path / "more").exists()


def test_kenlm_scores_what_was_trained(shared_data: Path, tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="kenlm is not installed: make judges")
    folder = shared_data / "kenlm"
    config = NgramConfig(order=4, prune=(0, 0, 1))
    train_ngram(folder / "ewt-dev.txt", tmp_path / "m", config, arpa=tmp_path / "x.arpa")
    judge = kenlm.Model(str(tmp_path / "x.arpa"))
    model = seqtool.load(tmp_path / "m")
    lines = (folder / "ewt-query.txt").read_text(encoding="utf-8").splitlines()[:300]
    ids = model.tokenizer.encode_block("".join(f"{line}\n" for line in lines).encode())
    (scores,) = model.score_ids([ids])
    wanted = [score for line in lines for score in judge.full_scores(line)]
    assert len(wanted) == len(scores.log_probs)
    for (log10, order, _), ours, our_order in zip(
        wanted, scores.log_probs / math.log(10), scores.columns["order"], strict=True
    ):
        assert abs(log10 - ours) < 1e-5
        assert order == our_order


def test_other_programs_read_parquet(text: Path, tmp_path: Path) -> None:
    config = NgramConfig(order=3, smoothing="maximum-likelihood")  # which has zeros
    folder = tmp_path / "ngrams"
    trained = train_ngram(text, tmp_path / "model", config, parquet=folder)
    assert trained.parquet == folder
    table = pq.read_table(folder).to_pydict()
    numbers = zip(table["log_prob"], table["backoff"], strict=True)
    rows = dict(zip(table["ngram"], numbers, strict=True))
    # a goes on with b (20) and </s> (40), <s> with a (20) and b (20)
    assert rows["a b"][0] == pytest.approx(np.log(1 / 3))
    assert rows["<s> b"][0] == pytest.approx(np.log(1 / 2))
    assert rows["a b a"][1] is None
    assert set(table["order"]) == {1, 2, 3}
    with pytest.raises(OutputError, match="exists already"):
        train_ngram(text, tmp_path / "other", parquet=folder)
    with pytest.raises(OutputError, match="holds no n-grams"):
        train_ngram(text, tmp_path / "other", parquet=tmp_path, force=True)
    train_ngram(text, tmp_path / "other", NgramConfig(order=2), parquet=folder, force=True)
    assert {path.name for path in folder.iterdir()} == {"order=1", "order=2"}
