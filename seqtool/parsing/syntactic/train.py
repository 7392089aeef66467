"""Training of syntactic language models, from trees: `train_syntactic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from torch import Tensor
from torch.nn import functional

from seqtool.core.arrays import Longs
from seqtool.core.config import to_dict
from seqtool.core.errors import ConfigError
from seqtool.lm.neural.config import NeuralLMConfig, load_recipe
from seqtool.lm.neural.train import model_card, save_network
from seqtool.parsing.config import Presets
from seqtool.parsing.data import batches_of_like_lengths
from seqtool.parsing.syntactic.data import SyntacticData, side_by_side, syntactic_data
from seqtool.parsing.syntactic.model import KIND, SyntacticModel, score
from seqtool.parsing.syntactic.network import SyntacticNetwork
from seqtool.parsing.syntactic.tables import expected, possible, prefixes
from seqtool.parsing.train import Kind, RunOptions, TreebankTask, read_by, train_on_treebank
from seqtool.training.run import TrainedModel
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.evaluation import evaluate_parser

LEAST_EXPECTED = 1e-4  # of a step in a sentence without a tree, to be learnt

PRESETS = Presets(KIND, NeuralLMConfig, {"default": load_recipe("syntactic")}, "default")


class SyntacticTask(TreebankTask[NeuralLMConfig, SyntacticData]):
    """The probabilities of words and of the steps that build their trees."""

    items = "words"  # and sentence ends
    score = "dev_perplexity"
    larger_is_better = False

    def __init__(self, config: NeuralLMConfig, data: SyntacticData, **options: str) -> None:
        super().__init__(config, data, **options)
        if config.model.output.layer == "maxent":
            what = "an output layer of n-grams cannot read words from two places"
            raise ConfigError(what, hint="choose another output.layer than maxent")
        self.module = SyntacticNetwork(
            config.model,
            len(data.tokenizer.vocabulary),
            len(data.labels),
            sparse_embedding=config.training.embedding_optimiser == "sparse-adam",
            counts=np.asarray(data.tokenizer.vocabulary.counts),
        ).to(self._device)
        self._is_root = np.zeros(len(data.labels), np.bool_)  # of no matter for sums
        self._lengths = np.array([len(ids) for ids, _ in data.train])

    def set_progress(self, done: float) -> None:
        """Let the dropout of the next batch be what it is to be when so much is done."""
        self.module.lm.set_dropout(done)

    def start_epoch(self, epoch: int) -> int:
        """Draw batches of sentences of like lengths; return their number."""
        generator = np.random.default_rng((self.config.training.seed, epoch))
        num_words = round(self.config.data.batch_size * self._lengths.mean())
        order = generator.permutation(len(self._lengths))
        self._batches = batches_of_like_lengths(order, self._lengths, num_words, generator)
        self._raw_order = generator.permutation(len(self._data.raw))
        return len(self._batches)

    def loss(self, index: int) -> tuple[Tensor, int]:
        """Return the mean loss of batch `index`, per word and `</s>`.

        Where there is text without trees, as many sentences of it are learnt beside, by the sum
        over all of their trees.
        """
        loss, num = self._loss_of_trees(index)
        if not self._data.raw:
            return loss, num
        size = len(self._batches[index])
        places = np.take(self._raw_order, range(index * size, (index + 1) * size), mode="wrap")
        of_raw, num_raw = self._loss_of_all_trees([self._data.raw[place] for place in places])
        return (loss * num + of_raw) / (num + num_raw), num + num_raw

    def _loss_of_trees(self, index: int) -> tuple[Tensor, int]:
        """Return the mean nats of words and steps, of the trees that are there."""
        sentences = [self._data.train[place] for place in self._batches[index]]
        network = self.module
        states_XH = network.states(side_by_side([ids for ids, _ in sentences]))
        columns = np.repeat(np.arange(len(sentences)), [len(steps) for _, steps in sentences])
        ends = 1 + self._lengths[self._batches[index]][columns]
        tops, fronts, numbers, words = np.concatenate([steps for _, steps in sentences]).T
        rows_2N = np.stack([tops, fronts]) * len(sentences) + columns
        is_read, is_choice = words >= 0, numbers >= 0
        vectors_NH = network.word_vectors(states_XH, network.tensor(rows_2N[:, is_read]))
        loss = network.lm.softmax.loss(vectors_NH, network.tensor(words[is_read]))
        may_be_N3 = network.tensor(possible(tops, fronts, ends)[is_choice])
        choices_2N = network.tensor(rows_2N[:, is_choice])
        steps_NS = network.step_log_probs(states_XH, choices_2N, may_be_N3)
        nats = functional.nll_loss(steps_NS, network.tensor(numbers[is_choice]), reduction="sum")
        num = int(is_read.sum())
        return loss + nats / num, num

    def _loss_of_all_trees(self, sentences: Sequence[Longs]) -> tuple[Tensor, int]:
        """Return the nats of sentences, all derivations together, and the number of their tokens.

        The gradient of the logarithm of a sum is the mean of the gradients of its terms, by their
        shares. So what is differentiated is the expected number of each step times its nats; steps
        that are hardly expected are left out.
        """
        network, ids_TB = self.module, side_by_side(sentences)
        states_XH = network.states(ids_TB)
        network.eval()
        scored = score(network, sentences, self._is_root, states_XH.detach())
        network.train()
        nats, parts = 0.0, []
        for column, (ids, each) in enumerate(zip(sentences, scored, strict=True)):
            total, expected_steps, _ = expected(each.sums)
            nats -= total
            shares_ij = np.stack(expected_steps, -1)
            tops, fronts = np.nonzero(shares_ij.max(-1) > LEAST_EXPECTED)
            rows = np.column_stack([tops, fronts]) * len(sentences) + column
            read = ids_TB[np.minimum(fronts, len(ids)), column]
            may_be = possible(tops, fronts, np.full_like(tops, 1 + len(ids)))
            parts.append((rows, read, may_be, shares_ij[tops, fronts]))
        rows_N2, words_N, may_be_N3, shares_N3 = (
            network.tensor(np.concatenate(each)) for each in zip(*parts, strict=True)
        )
        steps_NS = network.step_log_probs(states_XH, rows_N2.T, may_be_N3)
        steps_N3 = network.sums(steps_NS).masked_fill(shares_N3 == 0, 0.0)
        steps_N3[:, 0] += network.word_log_probs(states_XH, rows_N2.T, words_N)
        surrogate = (shares_N3.to(steps_N3.dtype) * steps_N3).sum()
        # the value is that of the exact sum, the gradient that of what is expected
        return surrogate.detach() - surrogate + nats, sum(map(len, sentences)) + len(sentences)

    def model(self) -> SyntacticModel:  # type: ignore[override]
        """Return the model of the weights as they are."""
        return SyntacticModel(self.module, self._data.tokenizer, self._data.labels)

    def validate(self) -> dict[str, float]:
        """Return perplexity, exactly, and UAS and LAS of the best trees of the validation part."""
        model, dev = self.model(), self._data.dev
        parsed = [sentence.copy() for sentence in dev]
        nats = 0.0
        for sentence, scored in zip(parsed, model.scored(dev), strict=True):
            nats += prefixes(scored.sums)[-1]
            sentence.set_tree(*model.tree_of(scored))
        scores = evaluate_parser(dev, parsed).scores
        return {
            "dev_perplexity": float(np.exp(-nats / sum(len(sentence) + 1 for sentence in dev))),
            "dev_uas": scores["UAS"].f1,
            "dev_las": scores["LAS"].f1,
        }

    def save_model(self, directory: Path, scores: Mapping[str, float]) -> None:
        """Write the model as a model directory."""
        save_network(
            directory,
            KIND,
            self.module,
            self._data.tokenizer,
            model_card,
            config=to_dict(self.config),
            scores=dict(scores),
            data=dict(self.about),
            command=self._command,
            statistics={"labels": list(self._data.labels)},
        )


def train_syntactic(
    train_files: Sequence[str | Path] | str | Path | None = None,
    output: str | Path = "runs/lm",
    config: NeuralLMConfig | str | Mapping[str, Any] | None = None,
    unlabelled: Sequence[str | Path] = (),
    **options: Unpack[RunOptions],
) -> TrainedModel:
    """Train a language model that parses, from trees.

    Args:
        train_files: CoNLL-U with trees; only forms, heads and relations are read.
        output: the model directory.
        config: all settings, those of a neural language model; or some as a dictionary.
        unlabelled: text or CoNLL-U, learnt from beside the trees by the sum over all of its own.
        options: see `RunOptions`; the best epoch is chosen by perplexity.

    Returns:
        Its scores are `dev_perplexity`, `dev_uas` and `dev_las`.

    Raises:
        Interrupted, SeqtoolError: see `seqtool.parsing.train.train_on_treebank`.
    """
    return train_on_treebank(
        SYNTACTIC, train_files, output, config, unlabelled=unlabelled, **options
    )


_READ = read_by(
    syntactic_data,
    lambda files, _, skip_invalid: read_conllu(files, skip_invalid=skip_invalid, skip_option=""),
)
SYNTACTIC = Kind(
    PRESETS, "a CoNLL-U file with trees", _READ, SyntacticTask, model_card, bf16_on_cpu=False
)
