"""The parser at work: `Parser`, without torch; its directory, of kind "parser"."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from seqtool import model_cards
from seqtool.checkpoint import Header
from seqtool.config import from_dict
from seqtool.corpora.conllu import Broken
from seqtool.corpora.sentence import DEPREL, FORM, HEAD, Sentence
from seqtool.errors import counted
from seqtool.parsing.classifier import Classifier, weight_shapes
from seqtool.parsing.config import ParserConfig
from seqtool.parsing.directories import opening, read_weights, save_network
from seqtool.parsing.features import SymbolTable, TokenArrays, Types, encode
from seqtool.parsing.hidden_layer import Floats
from seqtool.parsing.projective import LIFTED, deprojectivise
from seqtool.parsing.search import MARGIN, search
from seqtool.parsing.states import Ints, Labels
from seqtool.parsing.word_states import WordStates, open_own, summarise

KIND = "parser"
CHUNK_WORDS = 1 << 11  # words parsed together: they fill the lanes, and stay in the cache
TABLE_BYTES = 192 << 20  # of the products of types; all are dropped when there are more

Tree = tuple[list[int], list[str]]


class Parser:
    """A trained parser.

    Args:
        config: all settings; `model.system` is no longer auto.
        types: those met so far, by the symbols that were learnt.
        labels: of arcs.
        weights: the arrays of `network.ParserNetwork`, by their names there.
        word_states: the language model that reads sentences, for weights that were trained so.
    """

    kind = KIND

    def __init__(
        self,
        config: ParserConfig,
        types: Types,
        labels: Labels,
        weights: Mapping[str, Floats],
        word_states: WordStates | None = None,
    ) -> None:
        self.config, self.labels, self.weights = config, labels, weights
        self.types, self.word_states = types, word_states
        self.classifier = Classifier(config.model, weights)
        self._threads = ThreadpoolController()
        self._names = np.asarray((*labels.names, ""), object)
        self._lifted = np.asarray([LIFTED in label for label in (*labels.names, "")])

    def encode(self, sentences: Iterable[Sentence]) -> TokenArrays:
        """Sentences as token arrays; if too many types were met, the earlier ones are forgotten."""
        if self.classifier.products.num_bytes > TABLE_BYTES:
            self.types.clear()
            self.classifier.products.clear()
        if self.word_states is None:
            return encode(sentences, self.types)
        sentences = list(sentences)
        lm_states = self.word_states.of([sentence.column(FORM) for sentence in sentences])
        return dataclasses.replace(encode(sentences, self.types), lm_states=lm_states)

    def prepare(self) -> None:
        """Make the products of the types that were met since the last time."""
        if self.classifier.products.num_types < len(self.types):
            self.classifier.products.extend(*self.types.arrays(self.classifier.products.num_types))

    def heads_and_labels(
        self, arrays: TokenArrays, *, beam: int = 1, margin: float = MARGIN
    ) -> tuple[Ints, Ints]:
        """Parse encoded sentences.

        Returns:
            Token arrays of heads and label ids; -1 in the rows of NONE and ROOT. Lifted arcs are
            where the system put them.
        """
        # on several threads, products as small as these take longer
        with self._threads.limit(limits=1, user_api="blas"):
            self.prepare()
            return search(
                self.config.model.system,
                self.labels,
                arrays.tokens,
                arrays.lengths,
                len(arrays.types),
                self.classifier.scorer(arrays.types, self.classifier.in_context(arrays)),
                beam=beam,
                margin=margin,
            )

    def trees(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Tree]:
        """Parse encoded sentences: heads and labels of each, lifted arcs put back."""
        heads, label_ids = self.heads_and_labels(arrays, beam=beam)
        names = self._names[label_ids].tolist()
        # the sentences in which an arc is to be put back
        marked = np.flatnonzero(self._lifted[label_ids])
        crossing = set((np.searchsorted(arrays.tokens, marked, side="right") - 1).tolist())
        head_list = heads.tolist()
        begins, lengths = arrays.tokens.tolist(), arrays.lengths.tolist()
        for place, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            words = slice(begin + 1, begin + 1 + length)
            tree = head_list[words], names[words]
            yield deprojectivise(*tree) if place in crossing else tree

    def parse(self, sentences: Sequence[Sentence], *, beam: int = 1) -> None:
        """Give every sentence a tree."""
        arrays = self.encode(sentences)
        numbers = list(map(str, range(1 + max(arrays.lengths.tolist(), default=0))))
        for sentence, (heads, deprels) in zip(
            sentences, self.trees(arrays, beam=beam), strict=True
        ):
            # as Sentence.set_tree, but a number becomes a text once for all sentences
            for row, head, deprel in zip(sentence.rows, heads, deprels, strict=True):
                row[HEAD] = numbers[head]
                row[DEPREL] = deprel

    def parse_stream(
        self, items: Iterable[Sentence | Broken], *, beam: int = 1
    ) -> Iterator[Sentence | Broken]:
        """Give every sentence a tree, in chunks; broken ones pass through in their places."""
        chunk: list[Sentence | Broken] = []
        num_words = 0
        for item in items:
            chunk.append(item)
            if isinstance(item, Sentence):
                num_words += len(item)
            if num_words >= CHUNK_WORDS:
                self.parse([item for item in chunk if isinstance(item, Sentence)], beam=beam)
                yield from chunk
                chunk, num_words = [], 0
        self.parse([item for item in chunk if isinstance(item, Sentence)], beam=beam)
        yield from chunk


def save_model(
    directory: Path,
    parser: Parser,
    *,
    scores: Mapping[str, float],
    data: Mapping[str, Any],
    command: str = "",
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write a parser as a model directory."""
    vocabulary = {
        "lexical": parser.types.lexical.to_json(),
        "tags": parser.types.tags.to_json(),
        "arc_labels": list(parser.labels.arcs),
        "root_labels": list(parser.labels.roots),
    }
    save_network(
        directory,
        parser,
        vocabulary,
        model_card,
        scores=scores,
        data=data,
        command=command,
        versions=versions,
    )


def load_model(directory: Path, header: Header, *, device: str = "cpu") -> Parser:
    """Open the parser in a model directory; it works on the CPU, whatever the device.

    Raises:
        ModelError: a file is missing or damaged.
    """
    with opening(directory, header) as vocabulary:
        config = from_dict(ParserConfig, header.config)
        types = Types(
            SymbolTable.from_json(vocabulary["lexical"]), SymbolTable.from_json(vocabulary["tags"])
        )
        labels = Labels(tuple(vocabulary["arc_labels"]), tuple(vocabulary["root_labels"]))
        word_states = open_own(directory, header.data)
        shapes = weight_shapes(
            config.model,
            types.lexical.num_symbols,
            types.tags.num_symbols,
            labels,
            word_states.size if word_states else 0,
        )
        weights = read_weights(directory, shapes)
        return Parser(config, types, labels, weights, word_states)


def model_card(header: Header) -> str:
    """Return the README.md of a parser: what it is, its scores, its data and its command."""
    model = header.config["model"]
    encoder = "a bidirectional LSTM, " if model["encoder"] == "bilstm" else ""
    size = f"{model['hidden_size']} hidden units, {counted(header.num_parameters, 'parameter')}"
    return model_cards.compose(
        header,
        "A dependency parser",
        f"Transition-based ({model['system']}), {encoder}{size}; it reads "
        f"{', '.join(model['fields'])}.",
        summarise(header.data),
        model_cards.scores_table(header),
        "UAS and LAS count every word, punctuation too, by gold words and tags.",
        model_cards.data_table(header),
        maker="train_parser (Python)",
        use=(
            "seqtool parse FILE.conllu -m THIS_DIRECTORY",
            "seqtool eval-parser GOLD.conllu -m THIS_DIRECTORY",
        ),
    )
