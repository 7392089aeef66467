"""Vectors of words by their characters (Kim et al. 2016; Jozefowicz et al. 2016).

Filters of several widths look at a word's characters, the strongest answer of each goes through
tanh, layers with highways mix them, and a linear map makes of them a vector as wide as any other
embedding. Words that share letters share weights, and a word that the vocabulary lacks has a vector
of its own letters.

Two things are not in the papers, which train by plain SGD and AdaGrad. What the map reads is less
its mean over the words of a window, as in batch normalisation: answers are mostly above zero, and
with Adam what all words have in common runs away from what tells them apart. And it is divided by
the root of its width, so that a step moves a vector about as far as one of a table.

Dimensions in names: V vocabulary, U words, L characters of the longest, F filters of all widths, E
width of a word's vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqtool.core.vocabulary import NUM_SPECIALS, UNK_ID
from seqtool.lm.neural.config import ModelConfig
from seqtool.lm.neural.joining import Highway
from seqtool.text.characters import BEGIN, END, PAD, Characters, padded
from seqtool.text.network import Filters

WORDS_AT_ONCE = 4096  # of those whose vectors are kept
MIN_COUNT = 2  # a rarer character of the vocabulary is known by its class alone
NEW_MEAN = 0.1  # the weight of a window in the mean over windows
MOST_UNKNOWN = 100_000  # words beyond the vocabulary that are told apart; those after them are not


class SpelledWords(nn.Module):
    """Takes the place of a table of embeddings.

    `<unk>` and `</s>` are words of one character that no other has. Ids from V on are of words that
    the vocabulary lacks, as `add` gives them.

    In evaluation mode without gradients, the vector of a word is made once. All are forgotten when
    the mode is set, be it to the same one.

    Weights, by their names in a model's file behind `embedding.`:

        characters.weight                            [symbols of characters, C]
        filters.N.weight, filters.N.bias             [F of this width, C, K], [F of this width]
        layers.N.weight, highways.N.gate.weight      [F, F], and biases [F]
        mean_F                                       [F], over the windows of training
        projection.weight, projection.bias           [E, F], [E]

    Args:
        words: the symbols of the vocabulary by id.
        size: E.
        config: `input` has its settings; the transform bias is that of all highways.

    Attributes:
        num_embeddings: V.
    """

    spelled_UL: Tensor
    mean_F: Tensor

    def __init__(self, words: Sequence[str], size: int, config: ModelConfig) -> None:
        super().__init__()
        settings, ordinary = config.input, words[NUM_SPECIALS:]
        self.num_embeddings = len(words)
        self._alphabet = Characters.build(dict.fromkeys(ordinary, 1), MIN_COUNT)
        num_symbols = self._alphabet.num_symbols
        # words of one character make room for the specials
        spelled_UL = padded(*self._alphabet.rows(["?"] * NUM_SPECIALS + list(ordinary)))
        for special in range(NUM_SPECIALS):
            spelled_UL[special, :3] = BEGIN, num_symbols + special, END
        self.register_buffer("spelled_UL", torch.from_numpy(spelled_UL), persistent=False)
        self._unknown: dict[str, int] = {}
        self._kept_UE: Tensor | None = None
        self.characters = nn.Embedding(
            num_symbols + NUM_SPECIALS, settings.character_size, padding_idx=PAD
        )
        self.filters = nn.ModuleList(
            Filters(settings.character_size, num, width)
            for width, num in zip(settings.filter_widths, settings.filters, strict=True)
        )
        num_filters = sum(settings.filters)
        self.layers = nn.ModuleList(
            nn.Linear(num_filters, num_filters) for _ in range(settings.highways)
        )
        self.highways = nn.ModuleList(
            Highway(num_filters, config) for _ in range(settings.highways)
        )
        self.projection = nn.Linear(num_filters, size)
        self.register_buffer("mean_F", torch.zeros(num_filters))

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all weights so that each layer's values are about as large as those it reads.

        How large embeddings are by `init_range` says nothing of what filters should be.
        """
        nn.init.normal_(self.characters.weight, std=0.5)
        self.characters.weight[PAD] = 0.0
        for filters in self._filters():
            _, size, width = filters.weight.shape
            nn.init.normal_(filters.weight, std=(size * width) ** -0.5)
            filters.get_parameter("bias").zero_()
        for linear in self.modules():
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)
        for highway in self._highways():
            highway.initialise_biases()

    def _filters(self) -> list[Filters]:
        return [part for part in self.filters if isinstance(part, Filters)]

    def _highways(self) -> list[Highway]:
        return [part for part in self.highways if isinstance(part, Highway)]

    def add(self, words: Iterable[str]) -> list[int]:
        """Return ids of words that the vocabulary lacks, each the same whenever it comes again.

        Where there are too many of them, that of `<unk>`.
        """
        words = list(words)
        new = [word for word in dict.fromkeys(words) if word not in self._unknown]
        new = new[: MOST_UNKNOWN - len(self._unknown)]
        if new:
            first = len(self.spelled_UL)
            self._unknown.update(zip(new, range(first, first + len(new)), strict=True))
            added_UL = torch.from_numpy(padded(*self._alphabet.rows(new)))
            added_UL = added_UL.to(self.spelled_UL.device)
            longest = max(self.spelled_UL.shape[1], added_UL.shape[1])
            self.spelled_UL = torch.cat(
                [
                    functional.pad(part, (0, longest - part.shape[1]), value=PAD)
                    for part in (self.spelled_UL, added_UL)
                ]
            )
        return [self._unknown.get(word, UNK_ID) for word in words]

    def know(self, other: SpelledWords) -> None:
        """Know the words beyond the vocabulary that another has met, by the same ids.

        Args:
            other: of the same vocabulary; this one is a copy of it that met none by itself.
        """
        if len(other.spelled_UL) > len(self.spelled_UL):
            self.spelled_UL, self._unknown = other.spelled_UL, dict(other._unknown)

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and forget the vectors: weights may have changed."""
        self._kept_UE = None
        return super().train(mode)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of words by their ids, (..., E); in training, less their mean."""
        if not self.training:
            return self.rows(ids)
        met, places = torch.unique(ids, return_inverse=True)
        mixed_UF = self._mix(self.spelled_UL[met])
        mean_F = mixed_UF.mean(dim=0)
        if (
            torch.is_grad_enabled()
        ):  # a step, and not a look ahead at the loss, which leaves no trace
            self.mean_F.lerp_(mean_F.detach(), NEW_MEAN)
        return functional.embedding(places, self._project(mixed_UF, mean_F))

    def rows(self, ids: Tensor) -> Tensor:
        """Return the vectors of words by their ids, (..., E), as evaluation reads them."""
        if self.training or torch.is_grad_enabled():
            met, places = torch.unique(ids, return_inverse=True)
            return functional.embedding(places, self.vectors(self.spelled_UL[met]))
        return functional.embedding(ids, self._kept())

    def table(self) -> Tensor:
        """Return the vectors of the vocabulary, (V, E)."""
        if self.training or torch.is_grad_enabled():
            return self.vectors(self.spelled_UL[: self.num_embeddings])
        return self._kept()[: self.num_embeddings]

    def _kept(self) -> Tensor:
        """Return the vectors of all words; those that are not known yet are made."""
        num_kept = 0 if self._kept_UE is None else len(self._kept_UE)
        if num_kept < len(self.spelled_UL) or self._kept_UE is None:
            # what is made here may be read where gradients are recorded again
            with torch.inference_mode(False), torch.no_grad():
                parts = torch.split(self.spelled_UL[num_kept:], WORDS_AT_ONCE)
                made = [self.vectors(part_UL) for part_UL in parts]
                self._kept_UE = torch.cat(made if self._kept_UE is None else [self._kept_UE, *made])
        return self._kept_UE

    def _mix(self, spelled_UL: Tensor) -> Tensor:
        """Return what the linear map reads of words, (U, F), but for their mean."""
        answers = [part.strongest(self.characters, spelled_UL) for part in self._filters()]
        mixed_UF = torch.tanh(torch.cat(answers, dim=1))  # as the strongest of all tanhs
        for layer, highway in zip(self.layers, self._highways(), strict=True):
            mixed_UF = highway(mixed_UF, torch.relu(layer(mixed_UF)))
        return mixed_UF

    def vectors(self, spelled_UL: Tensor) -> Tensor:
        """Return the vectors (U, E) of words from their characters (U, L)."""
        return self._project(self._mix(spelled_UL), self.mean_F)

    def _project(self, mixed_UF: Tensor, mean_F: Tensor) -> Tensor:
        scale = self.projection.in_features**-0.5
        vectors_UE: Tensor = self.projection((mixed_UF - mean_F) * scale)
        return vectors_UE
