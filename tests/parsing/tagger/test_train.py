"""Training of taggers: what is learnt, what is recorded, that a resumed run ends the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from parsing.tagger.toy import bare, random_treebank, sentence_of, tiny_config, write_treebank
from torch import Tensor
from torch.nn import functional

from seqtool.core import checkpoint
from seqtool.core.errors import DataError
from seqtool.core.progress import EpochDone, Event
from seqtool.parsing.tagger.data import NO_SCRIPT, tagger_data
from seqtool.parsing.tagger.train import TaggerTask, train_tagger
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.sentence import LEMMA, UPOS, Sentence


def test_rules_are_learnt(tmp_path: Path) -> None:
    train = write_treebank(tmp_path / "train.conllu", 80)
    dev = write_treebank(tmp_path / "dev.conllu", 20, seed=1)
    events: list[Event] = []
    result = train_tagger(
        train, tmp_path / "t", tiny_config(12), dev=dev, device="cpu", on_event=events.append
    )
    kinds = ("upos", "xpos", "feats", "tags", "lemmas")
    assert [result.scores[f"dev_{kind}"] for kind in kinds] == [100.0] * 5
    assert len([event for event in events if isinstance(event, EpochDone)]) == result.epochs == 12
    assert result.scores["words_per_second"] > 0
    # the model that is opened tags as the one that was measured, also what has to be retagged
    tagger = checkpoint.load(tmp_path / "t")
    gold = [item.to_conllu() for item in read_conllu(dev)]
    sentences = list(read_conllu(dev))
    for sentence in sentences:
        for row in sentence.rows:
            row[LEMMA : UPOS + 3] = ["?", "X", "?", "?"]
    assert [item.to_conllu() for item in tagger.tag_stream(sentences, retag=True)] == gold
    # words that were not met, by their endings and the words before them
    unseen = bare(["the", "cows", "jumped"])
    tagger.tag([unseen])
    assert unseen.rows[1][LEMMA : UPOS + 1] == ["cow", "NOUN"]


def test_what_is_made_of_a_treebank() -> None:
    words = [("a", "a", "X", "_", "_"), ("as", "a", "X", "_", "P=1"), ("went", "go", "V", "_", "_")]
    others = [("as", "as", "Y", "_", "_"), ("as", "a", "X", "_", "P=1")]
    sentences = [sentence_of(words), sentence_of(words[:1])]
    data = tagger_data(sentences, [sentence_of(others)], tiny_config(model__min_script_count=2))
    assert data.bundles.names == (("X", "_", "_"), ("V", "_", "_"), ("X", "_", "P=1"))
    assert data.train.words.tolist() == [0, 1, 2, 0]
    assert data.train.lengths.tolist() == [3, 1]
    # of the word that only the validation part has there is no bundle; one script is learnt
    assert data.bundle_ids.tolist() == [0, 2, 1, -1]
    assert data.script_ids.tolist() == [0, NO_SCRIPT, NO_SCRIPT, 0]
    assert data.dev.words.tolist() == [3, 1]
    rows = [row[:6] for row in data.untagged_dev()[0].rows]
    assert rows == [[number, "as", "_", "_", "_", "_"] for number in ("1", "2")]


def test_words_without_tags_are_refused() -> None:
    sentence = Sentence(["# x"], bare(["a", "b"]).rows, [], "file.conllu", 7)
    sentence.rows[0][UPOS] = "X"
    with pytest.raises(DataError, match="token 2 has no UPOS") as caught:
        tagger_data([sentence], None, tiny_config())
    assert (caught.value.path, caught.value.line) == ("file.conllu", 9)


def test_batches_hold_every_sentence_once_and_like_lengths_together() -> None:
    data = tagger_data(random_treebank(60), (), tiny_config())
    task = TaggerTask(tiny_config(learning__batch_words=20), data)

    def batches(epoch: int) -> list[list[int]]:
        num = task.start_epoch(epoch)
        assert num == len(task._batches)
        return [batch.tolist() for batch in task._batches]

    first = batches(0)
    assert sorted(i for batch in first for i in batch) == list(range(60))
    lengths = [data.train.lengths[batch] for batch in first]
    assert all(each.sum() <= 20 + each.max() for each in lengths)
    padding = sum(each.max() * len(each) - each.sum() for each in lengths)
    assert padding < 0.1 * data.train.lengths.sum()
    assert batches(1) != first
    assert batches(0) == first


@pytest.mark.parametrize("adversarial", [0.0, 0.5])
def test_the_loss_by_hand(adversarial: float) -> None:
    """Of each word alone, the bundle's share of all, and the script's; without noise and cloze.

    With an adversary, bundles are learnt as they are, too, and all else where it moves them.
    """
    odd = sentence_of([("zzz", "yyy", "INTJ", "UH", "_")])  # a script that is not learnt
    data = tagger_data([*random_treebank(30), odd], (), tiny_config(model__min_script_count=2))
    none = {f"learning__dropout_{kind}": 0.0 for kind in ("words", "embeddings", "encoder")}
    config = tiny_config(
        model__min_script_count=2,
        learning__dropout_lemmas=0.0,
        learning__lemma_weight=0.7,
        learning__label_smoothing=0.2,
        learning__adversarial=adversarial,
        learning__cloze_weight=0.0,
        learning__batch_words=10_000,
        learning__min_steps=1,
        **none,
    )
    task = TaggerTask(config, data)
    task.start_epoch(0)
    found, num = task.loss(0)
    assert num == len(data.train.words)
    network, table = task.module, torch.from_numpy(data.bundles.table).long()
    sizes = [len(values) for values in data.bundles.values]
    sentences = np.split(data.train.words, np.cumsum(data.train.lengths)[:-1])

    def losses(inputs: Tensor) -> tuple[Tensor, Tensor]:
        of_tags, of_lemmas = [], []
        for sentence, vectors in zip(
            sentences, inputs.split(data.train.lengths.tolist()), strict=True
        ):
            states, _ = network.states(
                vectors, torch.tensor([len(sentence)]), lambda x: x, lambda x: x
            )
            for place, word in enumerate(sentence):
                values = network.values(states[place]).split(sizes)
                scores = torch.stack(
                    [sum(p[i] for p, i in zip(values, row, strict=True)) for row in table]
                )
                bundle = int(data.bundle_ids[word])
                logs = functional.log_softmax(scores, 0)
                of_tags.append(-0.8 * logs[bundle] - 0.2 * logs.mean())  # the rest for all alike
                script = int(data.script_ids[word])
                if script != NO_SCRIPT:
                    made = network.lemma_scores(
                        states[place : place + 1], torch.tensor([bundle]), lambda x: x
                    )
                    of_lemmas.append(-functional.log_softmax(made[0], 0)[script])
        assert 0 < len(of_lemmas) < len(of_tags)
        return torch.stack(of_tags).mean(), torch.stack(of_lemmas).mean()

    inputs = network.vectors(
        torch.from_numpy(data.lexical[data.train.words]).long(),
        torch.from_numpy(data.spelling[data.train.words]).long(),
    ).detach()
    inputs.requires_grad_()
    of_tags, of_lemmas = losses(inputs)
    if adversarial:
        (slopes,) = torch.autograd.grad(of_tags, inputs)
        moved = inputs + 0.5 * slopes * (inputs.norm(dim=1) / slopes.norm(dim=1))[:, None]
        worse, of_lemmas = losses(moved)
        assert worse > of_tags + 0.01
        of_tags = (of_tags + worse) / 2
    torch.testing.assert_close(found, of_tags + 0.7 * of_lemmas, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shares", [True, False])
def test_tags_that_share_morphemes_are_not_smoothed(shares: bool) -> None:
    found = []
    for smoothing in (0.0, 0.3):
        config = tiny_config(learning__label_smoothing=smoothing, learning__share_parts=shares)
        task = TaggerTask(config, tagger_data([sentence_of(JOINED)] * 20, None, config))
        task.start_epoch(0)
        found.append(task.loss(0)[0].item())
    assert (found[0] == found[1]) == shares


JOINED = [
    ("고향은", "고향+은", "NOUN", "ncn+jxt", "Case=Nom|Number=Sing"),
    ("서울은", "서울+은", "NOUN", "nq+jxt", "Case=Acc|Number=Sing"),
    ("내", "내", "DET", "mma", "_"),
]


def test_the_parts_of_tags_by_hand() -> None:
    """Values: NOUN, DET; the three of XPOS; the three of FEATS. Parts are those of two or more."""
    data = tagger_data([sentence_of(JOINED)], None, tiny_config())
    assert [list(numbers) for numbers in data.bundles.values] == [
        ["DET", "NOUN"],
        ["mma", "ncn+jxt", "nq+jxt"],
        ["_", "Case=Nom|Number=Sing", "Case=Acc|Number=Sing"],
    ]
    # jxt in XPOS, jxt as its last one
    assert data.bundles.parts.tolist() == [
        *([0, 0], [0, 0]),
        *([0, 0], [1, 1], [1, 1]),
        *([0, 0], [0, 0], [0, 0]),
    ]


def test_a_tagger_has_the_weights_of_parts_in_those_of_values() -> None:
    data = tagger_data([sentence_of(JOINED)], None, tiny_config())
    task = TaggerTask(tiny_config(learning__averaging=0.0), data)
    states = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32))
    assert task.module.parts is not None
    before = task.module.value_scores(states)
    with torch.no_grad():  # of the last part, a last jxt, which values 3 and 4 have
        task.module.parts.weight[1] += 1.0
        after = task.module.value_scores(states)
    added = states.sum(1, keepdim=True) * torch.tensor([0.0] * 3 + [1.0] * 2 + [0.0] * 3)
    torch.testing.assert_close(after, before + added)
    weights = task.model().weights
    assert "parts.weight" not in weights
    of_model = states @ torch.from_numpy(weights["values.weight"]).T + torch.from_numpy(
        weights["values.bias"]
    )
    torch.testing.assert_close(of_model, after)
