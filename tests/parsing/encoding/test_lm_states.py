"""Taggers and parsers that read a language model: its states, what is learnt, what is kept."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm.neural.test_model import make
from parsing.parser.test_train import config as parser_config
from parsing.tagger import toy
from safetensors.numpy import load_file
from toy_models import byte_tokenizer, char_tokenizer, word_tokenizer

from seqtool.core import checkpoint
from seqtool.core.arrays import Reals
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, Interrupted, ModelError
from seqtool.core.vocabulary import EOS, UNK, Vocabulary
from seqtool.lm.neural.config import ModelConfig, NeuralLMConfig
from seqtool.lm.neural.model import NeuralLanguageModel, NeuralNetwork
from seqtool.lm.neural.train import train_lm
from seqtool.lm.ngram.config import NgramConfig
from seqtool.lm.ngram.train import train_ngram
from seqtool.parsing.encoding import pretrained
from seqtool.parsing.encoding.encoder import AveragedWeights, Cloze
from seqtool.parsing.encoding.pretrained import WordStates, open_word_states
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.data import prepare_data
from seqtool.parsing.parser.train import train_parser
from seqtool.parsing.parser.transition.hidden_layer import SCALE
from seqtool.parsing.parser.transition.task import ParserTask
from seqtool.parsing.tagger import data as tagging
from seqtool.parsing.tagger.config import TaggerConfig
from seqtool.parsing.tagger.task import TaggerTask
from seqtool.parsing.tagger.train import train_tagger
from seqtool.text.datasets import sample_text, sample_treebank
from seqtool.text.subwords import train_subwords
from seqtool.text.tokenizers import Tokenizer, WordTokenizer
from seqtool.treebank.conllu import read_conllu

Run = Callable[..., Any]
LINES = ["the old dog sees a cat", "a cat sees the old dog now", "no dog"]
TEXTS = [
    ["the", "old", "dog"],
    ["a"],
    ["The", "unheard", "</s>", "10 000", "cat", "<s>", "가"],
    ["now", "a", "cat", "sees", "dog"],
    ["the", "old", "dog"],
]
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "word": lambda: word_tokenizer(["the", "old", "dog", "cat", "a", "10", "000"]),
    "lower": lambda: WordTokenizer(Vocabulary([UNK, EOS, "the", "cat"]), lowercase=True),
    "char": lambda: char_tokenizer("abcdehlnostuw 01"),
    "byte": byte_tokenizer,
    "bpe": lambda: train_subwords(LINES, unit="bpe", vocab_size=40),
    "unigram": lambda: train_subwords(LINES, unit="unigram", vocab_size=18),
}


def language_model(tokenizer: Tokenizer) -> NeuralLanguageModel:
    torch.manual_seed(4)
    network = NeuralNetwork(
        ModelConfig(cell="lstm", hidden_size=5, init_range=0.6), len(tokenizer.vocabulary)
    )
    return NeuralLanguageModel(network, tokenizer)


def by_steps(model: NeuralLanguageModel, forms: Sequence[str]) -> list[Reals]:
    """The state after each beginning of a sentence, written as a line and read unit by unit."""
    rows = []
    for number in range(len(forms) + 1):
        known = [
            UNK if form in ("<s>", EOS) and model.tokenizer.unit == "word" else form
            for form in forms[:number]
        ]
        state = model.start(1)
        for token in model.tokenizer.encode(" ".join(known)):
            state = model.advance(state, np.array([token], dtype=np.int32))
        rows.append(model.hidden_state(state)[0])
    return rows


@pytest.mark.parametrize("unit", list(TOKENIZERS))
def test_states_are_those_after_the_last_unit_of_each_word(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = language_model(TOKENIZERS[unit]())
    for size in (1, 40, 1 << 13):  # alone, some together, all together
        monkeypatch.setattr(pretrained, "BATCH_IDS", size)
        found = WordStates(model, {}).of(TEXTS)
        for forms, states in zip(TEXTS, found, strict=True):
            assert states.shape == (len(forms) + 1, 5)
            np.testing.assert_allclose(states, by_steps(model, forms), rtol=0, atol=3e-4)
    assert WordStates(model, {}).of([]) == []


def test_unknown_words_are_read_as_such() -> None:
    states = WordStates(language_model(TOKENIZERS["word"]()), {})
    one, other = states.of([["the", "x", "dog"], ["the", "</s>", "dog"]])
    np.testing.assert_array_equal(one, other)


def test_what_is_kept_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(double=False)
    read: list[int] = []
    states_of = model.sentence_states
    monkeypatch.setattr(
        model, "sentence_states", lambda batch: read.append(len(batch)) or states_of(batch)
    )
    kept = WordStates(model, {}, keep=True)
    first = kept.of(TEXTS)
    again = kept.of(TEXTS[::-1])[::-1]
    assert sum(read) == 4  # one sentence comes twice
    assert all(one is other for one, other in zip(first, again, strict=True))


def test_numbers_too_large_for_half_precision_are_bounded() -> None:
    model = language_model(TOKENIZERS["word"]())
    states_of = model.sentence_states
    model.sentence_states = lambda batch: [1e9 * s for s in states_of(batch)]  # type: ignore
    (states,) = WordStates(model, {}).of([["the", "dog"]])
    assert np.isfinite(states).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of some of the sample, its trees in a treebank, and models that read it."""
    folder = tmp_path_factory.mktemp("models")
    with open(sample_text("en", "train")) as lines:
        (folder / "text.txt").write_text("".join(islice(lines, 300)))
    lm = {
        "model": {"cell": "lstm", "hidden_size": 8},
        "data": {"batch_size": 8, "bptt": 16},
        "training": {"epochs": 1, "precision": "float32"},
    }
    train_lm(folder / "text.txt", folder / "lm", from_dict(NeuralLMConfig, lm), device="cpu")
    with gzip.open(sample_treebank("en", "train"), "rt") as lines:
        text = lines.read(60_000)
    sentences = text.split("\n\n")[:-1]
    for name, some in (("train", sentences[:90]), ("dev", sentences[90:110])):
        (folder / f"{name}.conllu").write_text("".join(f"{item}\n\n" for item in some))
    data = folder / "train.conllu"
    options: Any = {"dev": folder / "dev.conllu", "lm": folder / "lm", "device": "cpu"}
    train_tagger(data, folder / "tagger", tagger_config(), **options)
    train_parser(data, folder / "parser", bilstm_config(), **options)
    return folder


def tagger_config(epochs: int = 2, **rest: Any) -> TaggerConfig:
    return toy.tiny_config(epochs, model__lm_size=6, **rest)


def bilstm_config(epochs: int = 1, **rest: Any) -> ParserConfig:
    settings = {"model__encoder": "bilstm", "model__encoder_size": 6, "model__lm_size": 7}
    return parser_config(epochs, **settings, **rest)


def test_a_model_is_complete_by_itself(folder: Path, tmp_path: Path, seqtool: Run) -> None:
    """What was measured in training is what the model does elsewhere, the original gone."""
    for kind in ("tagger", "parser"):
        shutil.copytree(folder / kind, tmp_path / kind)
        assert (tmp_path / kind / "lm" / "weights.safetensors").is_file()
        assert not (tmp_path / kind / "lm" / "last").exists()
        header = checkpoint.read_header(tmp_path / kind)
        assert header.data["lm_bytes"] == sum(
            path.stat().st_size
            for path in (tmp_path / kind / "lm").iterdir()
            if path.name not in ("model.json", "README.md")
        )
        assert "language model of word units" in (tmp_path / kind / "README.md").read_text()
    gold = list(read_conllu(folder / "dev.conllu"))
    tagged, parsed = (list(read_conllu(folder / "dev.conllu")) for _ in range(2))
    checkpoint.load(tmp_path / "tagger").tag(tagged, retag=True)
    checkpoint.load(tmp_path / "parser").parse(parsed)
    num = sum(map(len, gold))
    right = sum(
        row[3:6] == other[3:6]
        for one, two in zip(gold, tagged, strict=True)
        for row, other in zip(one.rows, two.rows, strict=True)
    )
    heads = sum(
        row[6] == other[6]
        for one, two in zip(gold, parsed, strict=True)
        for row, other in zip(one.rows, two.rows, strict=True)
    )
    scores = {**checkpoint.read_header(tmp_path / "tagger").scores}
    assert scores["dev_tags"] == pytest.approx(100 * right / num)
    scores = {**checkpoint.read_header(tmp_path / "parser").scores}
    assert scores["dev_uas"] == pytest.approx(100 * heads / num)
    # the command, which takes another way where no language model is read
    output = tmp_path / "out.conllu"
    result = seqtool("parse", folder / "dev.conllu", "-m", tmp_path / "parser", "-o", output)
    assert result.code == 0, result.stderr
    assert output.read_text() == "".join(sentence.to_conllu() for sentence in parsed)


def test_company_changes_no_sentence(folder: Path) -> None:
    tagger, parser = (checkpoint.load(folder / kind) for kind in ("tagger", "parser"))
    sentences = list(islice(read_conllu(folder / "dev.conllu"), 8))
    together = tagger.read(sentences).scores
    begin = 0
    for sentence in sentences:
        alone = tagger.read([sentence]).scores
        part = together[begin : begin + len(sentence)]
        np.testing.assert_allclose(alone, part, rtol=0, atol=5e-3)
        begin += len(sentence)
    assert list(parser.parse_stream([])) == list(tagger.tag_stream([])) == []
    parser.parse(sentences)
    for sentence in islice(read_conllu(folder / "dev.conllu"), 8):
        parser.parse([sentence])
        assert sentence.to_conllu() == sentences.pop(0).to_conllu()


def test_a_tagger_s_scores_are_those_of_its_network(folder: Path) -> None:
    states = open_word_states(folder / "lm", keep=True)
    config = tagger_config(learning__averaging=0.0, model__sparse_bits=0)  # the network alone
    data = tagging.read_data(
        [str(folder / "train.conllu")], str(folder / "dev.conllu"), config.model,
        word_states=states,
    )  # fmt: skip
    task = TaggerTask(config, data)
    with torch.no_grad():
        task.module.lm.weight.mul_(20)  # so that what is read is of weight
    sentences = data.untagged_dev()[:6]
    scores, _, vectors, places = task.model().read(sentences)
    read = states.of([sentence.column(1) for sentence in sentences])
    module = task.module.eval()
    with torch.no_grad():
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        both = [
            module.values(
                module.states(
                    torch.from_numpy(vectors[places]), lengths, lambda x: x, lambda x: x, lm
                )[0]
            ).numpy()
            for lm in (
                torch.from_numpy(np.concatenate([rows[1:] for rows in read])).float(),
                torch.zeros(int(lengths.sum()), states.size),
            )
        ]
    np.testing.assert_allclose(scores, both[0], rtol=0, atol=1e-4)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_a_parser_s_products_are_those_of_its_network(folder: Path) -> None:
    states = open_word_states(folder / "lm", keep=True)
    data = prepare_data(
        [str(folder / "train.conllu")], str(folder / "dev.conllu"),
        bilstm_config(learning__averaging=0.0), word_states=states,
    )  # fmt: skip
    task = ParserTask(data.config, data)
    with torch.no_grad():
        task.module.lm.weight.mul_(20)
        task.module.contexts.weight.mul_(5)
    parser, arrays = task.model(), data.dev.arrays
    parser.decoder.prepare(parser.types)
    found = parser.decoder.classifier.in_context(arrays).reshape(len(arrays.types), -1)
    with torch.no_grad():
        vectors = task.module.type_vectors(*task._symbols)[arrays.types[1:]]
        results = []
        for scale in (1.0, 0.0):
            assert arrays.lm_states is not None
            read = torch.from_numpy(np.concatenate(arrays.lm_states)).float() * scale
            inputs = torch.cat((vectors, task.module.lm(read)), 1)
            encoded = task.module.encoder(inputs, torch.from_numpy(arrays.lengths + 1))
            num_slots = len(data.config.model.contexts)
            by_slot = task.module.contexts.weight.unflatten(1, (num_slots, -1))
            units = task.module.in_context(encoded)
            products = torch.einsum("tk,fsk->tsf", units, by_slot).flatten(1)
            results.append((products * SCALE).numpy())
    np.testing.assert_allclose(found[1:], results[0], rtol=0, atol=1.0)
    assert np.abs(results[0] - results[1]).max() > 50.0


@pytest.mark.parametrize("kind", ["tagger", "parser"])
def test_words_are_told_without_the_language_model(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read them: what they are told by has not seen its states."""
    states = open_word_states(folder / "lm", keep=True)
    files = [str(folder / "train.conllu")], str(folder / "dev.conllu")
    task: TaggerTask | ParserTask
    if kind == "tagger":
        settings = tagger_config()
        task = TaggerTask(settings, tagging.read_data(*files, settings.model, word_states=states))
    else:
        data = prepare_data(*files, bilstm_config(), word_states=states)
        task = ParserTask(data.config, data)
    seen: list[torch.Tensor] = []
    forward = Cloze.forward

    def watched(module: Cloze, states: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        seen.append(states.detach())
        return forward(module, states, *rest)

    monkeypatch.setattr(Cloze, "forward", watched)
    # what is explored, by the average, stays the same
    monkeypatch.setattr(AveragedWeights, "update", lambda average: None)
    losses = []
    for scale in (1.0, 20.0):
        with torch.no_grad():
            task.module.lm.weight.mul_(scale)
        task.start_epoch(0)
        losses.append(task.loss(0)[0].item())
    assert losses[0] != losses[1]
    assert seen[0].equal(seen[1])


@pytest.mark.parametrize("kind", ["tagger", "parser"])
def test_a_resumed_run_ends_with_the_same_weights(kind: str, folder: Path, tmp_path: Path) -> None:
    """Also when the language model that was given is not there any more."""
    settings: Any = tagger_config() if kind == "tagger" else bilstm_config()
    train: Any = train_tagger if kind == "tagger" else train_parser
    shutil.copytree(folder / "lm", tmp_path / "lm")
    with pytest.raises(Interrupted):
        train(
            folder / "train.conllu", tmp_path / "run", settings, dev=folder / "dev.conllu",
            lm=tmp_path / "lm", device="cpu", should_stop=lambda step: step == 12,
        )  # fmt: skip
    shutil.rmtree(tmp_path / "lm")
    train(None, tmp_path / "run", resume=True, device="cpu")
    whole, parts = (
        load_file(path / "weights.safetensors") for path in (folder / kind, tmp_path / "run")
    )
    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)


def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder / "tagger", tmp_path / "tagger")
    return tmp_path / "tagger"


def test_a_copy_that_is_missing_damaged_or_another(folder: Path, tmp_path: Path) -> None:
    path = copied(folder, tmp_path)
    weights = path / "lm" / "weights.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-4])
    with pytest.raises(ModelError, match="damaged"):
        checkpoint.load(path)
    weights.write_bytes(content)
    header = json.loads((path / "lm" / "model.json").read_text())
    del header["sha256"]
    header["tokenizer"]["lowercase"] = True
    (path / "lm" / "model.json").write_text(json.dumps(header))
    with pytest.raises(ModelError, match="not the language model"):
        checkpoint.load(path)
    shutil.rmtree(path / "lm")
    with pytest.raises(ModelError, match="is missing") as caught:
        checkpoint.load(path)
    assert caught.value.hint


def test_a_part_of_what_is_replaced_is_refused(folder: Path, tmp_path: Path) -> None:
    path = copied(folder, tmp_path)
    with pytest.raises(ConfigError, match="part of what is replaced"):
        train_tagger(folder / "train.conllu", path, tagger_config(), lm=path / "lm", force=True)
    checkpoint.load(path)  # as it was
    # a run that was killed before it began leaves its copy alone, which may be replaced
    checkpoint.copy(path / "lm", tmp_path / "killed" / "lm")
    checkpoint.check_output(tmp_path / "killed", force=True)


def test_models_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    train_ngram(folder / "text.txt", tmp_path / "n", NgramConfig(order=2))
    (tmp_path / "x.arpa").write_text(
        "\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n0\t<s>\n-0.1\t</s>\n\n\\end\\\n"
    )
    shutil.copytree(folder / "lm", tmp_path / "damaged")
    with open(tmp_path / "damaged" / "weights.safetensors", "r+b") as weights:
        weights.truncate(100)
    for lm, message, hint in (
        (tmp_path / "nothing", "no such model", "models at hand"),
        (tmp_path / "n", "no neural language model", "train-lm"),
        (tmp_path / "x.arpa", "no neural language model", "train-lm"),
        (folder / "parser", "no neural language model", "train-lm"),
        (tmp_path / "damaged", "damaged", "again"),
    ):
        with pytest.raises(ModelError, match=message) as caught:
            open_word_states(lm)
        assert str(lm) in str(caught.value.path)
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("command", "lm", "message"),
    [
        (["train-tagger"], "parser", "no neural language model"),
        (["train-parser", "--preset", "accurate"], "nothing", "no such model"),
        (["train-parser", "--raw"], "parser", "no neural language model"),
        (["train-parser", "--preset", "fast"], "lm", "--lm is for an encoder"),
        (["train-parser", "--raw", "--preset", "fast"], "lm", "--lm is for an encoder"),
    ],
    ids=lambda value: "-".join(value).replace("--", "") if isinstance(value, list) else "",
)
def test_commands_refuse_them(
    command: list[str], lm: str, message: str, seqtool: Run, folder: Path, tmp_path: Path
) -> None:
    name, *options = command
    result = seqtool(
        name, folder / "train.conllu", *options, "--lm", folder / lm, "-o", tmp_path / "out",
        "--device", "cpu",
    )  # fmt: skip
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()[-2:]
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert not (tmp_path / "out").exists()


def test_inspect_says_what_is_read(seqtool: Run, folder: Path) -> None:
    for kind in ("tagger", "parser"):
        shown = json.loads(seqtool("inspect", folder / kind, "--json").stdout)
        assert shown["data"]["lm_sum"]


def test_a_tagger_knows_of_a_word_what_the_language_model_does(tmp_path: Path) -> None:
    """Of words by themselves, to whose spelling the tagger is blind: which of two words follows."""
    chooser = random.Random(0)
    words = ["".join(chooser.choices("aeioukstmn", k=5)) for _ in range(80)]
    follows = {word: ("runs", "shines")[number % 2] for number, word in enumerate(words)}
    lines = [f"{word} {follows[word]}\n" for word in words * 12]
    chooser.shuffle(lines)
    (tmp_path / "text.txt").write_text("".join(lines))
    lm = {
        "model": {"cell": "gru", "hidden_size": 8},
        "data": {"batch_size": 16, "bptt": 9},
        "training": {
            "epochs": 8, "precision": "float32", "optimiser": "adam", "learning_rate": 0.03,
        },
    }  # fmt: skip
    train_lm(tmp_path / "text.txt", tmp_path / "lm", from_dict(NeuralLMConfig, lm), device="cpu")
    for name, some in (("train", words[:60] * 3), ("dev", words[60:])):
        tagged = [(word, word, follows[word].upper(), "_", "_") for word in some]
        (tmp_path / f"{name}.conllu").write_text(
            "".join(toy.sentence_of([word]).to_conllu() for word in tagged)
        )
    blind = tagger_config(4, model__min_count=1000)
    scores = {
        given: train_tagger(
            tmp_path / "train.conllu", tmp_path / str(given), blind,
            dev=tmp_path / "dev.conllu", lm=tmp_path / "lm" if given else None, device="cpu",
        ).scores["dev_upos"]
        for given in (True, False)
    }  # fmt: skip
    assert scores[True] > 95
    assert scores[False] < 75
