"""The parser at work: `Parser`, without torch; its directory, of kind "parser"."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Ints
from seqtool.core.checkpoint import Header
from seqtool.core.config import from_dict
from seqtool.core.errors import ModelError, counted
from seqtool.parsing.encoding.features import SymbolTable, TokenArrays, Types, encode
from seqtool.parsing.encoding.lm_states import WordStates, open_own, summarise
from seqtool.parsing.model import opening, read_weights, save_network
from seqtool.parsing.parser.classifier import Classifier, average_scorer, weight_shapes
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.configurations import Labels
from seqtool.parsing.parser.search import MARGIN, search
from seqtool.parsing.parser.streams import parse_stream
from seqtool.treebank.conllu import Item
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, Sentence

KIND = "parser"
# what the scores are divided by in a beam. A classifier is too sure of single transitions, and its
# sum of log-probabilities then goes by the first mistake; EWT dev, `fast`, beam of 4: LAS 89.0 with
# 1, 89.2 with 1.25, 89.4 to 89.6 with 1.4 to 2, 89.1 with 2.5 (`accurate`: 90.3, best about 1.4)
TEMPERATURE = 1.5
TABLE_BYTES = 192 << 20  # of products of types, of each classifier; beyond it, all are dropped

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
        self._members, self._classifiers = [self], [self.classifier]
        self._threads = ThreadpoolController()
        self._names = np.asarray((*labels.names, ""), object)
        self._lifted = np.asarray([LIFTED in label for label in (*labels.names, "")])

    def joined(self, others: Sequence[Parser]) -> Parser:
        """A parser that goes by the mean of the scores of this one and others.

        Args:
            others: trained on the same data with the same settings, from other seeds.

        Raises:
            ModelError: one reads or says something else.
        """
        if not others:
            return self
        types = Types(self.types.lexical, self.types.tags)  # which it forgets by itself
        parser = Parser(self.config, types, self.labels, self.weights, self.word_states)
        for other in others:
            if not self._is_alike(other):
                raise ModelError(
                    "parsers of different treebanks or settings cannot parse together",
                    hint="train them on the same files, with settings that differ in the seed only",
                )
        parser._members = [member for one in (self, *others) for member in one._members]
        parser._classifiers += [
            Classifier(member.config.model, member.weights) for member in parser._members[1:]
        ]
        return parser

    def _is_alike(self, other: Parser) -> bool:
        def reads(parser: Parser) -> object:
            lm = None if parser.word_states is None else parser.word_states.about
            return parser.types.lexical.to_json(), parser.types.tags.to_json(), lm

        return (
            reads(self) == reads(other)
            and self.labels == other.labels
            and self.config.model.system == other.config.model.system
        )

    def encode(self, sentences: Iterable[Sentence]) -> TokenArrays:
        """Sentences as token arrays; if too many types were met, the earlier ones are forgotten."""
        self.limit_types()
        if self.word_states is None:
            return encode(sentences, self.types)
        sentences = list(sentences)
        lm_states = self.word_states.of([sentence.column(FORM) for sentence in sentences])
        return dataclasses.replace(encode(sentences, self.types), lm_states=lm_states)

    def limit_types(self) -> None:
        """Forget all types if too many were met."""
        tables = [classifier.products for classifier in self._classifiers]
        if max(table.num_bytes for table in tables) > TABLE_BYTES:
            self.types.clear()
            for table in tables:
                table.clear()

    def prepare(self) -> None:
        """Make the products of the types that were met since the last time."""
        for classifier in self._classifiers:
            num_types = classifier.products.num_types
            if num_types < len(self.types):
                classifier.products.extend(*self.types.arrays(num_types))

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
                average_scorer(
                    [
                        classifier.scorer(arrays.types, classifier.in_context(arrays))
                        for classifier in self._classifiers
                    ]
                ),
                beam=beam,
                margin=margin,
                temperature=TEMPERATURE,
            )

    def trees(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Tree]:
        """Parse encoded sentences: heads and labels of each, lifted arcs put back."""
        heads, label_ids = self.heads_and_labels(arrays, beam=beam)
        names = self._names[label_ids].tolist()
        lifted = set(self.with_lifted_arcs(arrays, label_ids))
        head_list = heads.tolist()
        begins, lengths = arrays.tokens.tolist(), arrays.lengths.tolist()
        for place, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            words = slice(begin + 1, begin + 1 + length)
            tree = head_list[words], names[words]
            yield deprojectivise(*tree) if place in lifted else tree

    def with_lifted_arcs(self, arrays: TokenArrays, label_ids: Ints) -> list[int]:
        """Return the places of the sentences in which an arc is to be put back, in order."""
        marked = np.flatnonzero(self._lifted[label_ids])
        places: list[int] = np.unique(
            np.searchsorted(arrays.tokens, marked, side="right") - 1
        ).tolist()
        return places

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

    def parse_stream(self, items: Iterable[Item], *, beam: int = 1) -> Iterator[Item]:
        """Give every sentence a tree, see `streams.parse_stream`."""
        return parse_stream(self, items, beam=beam)


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
    return checkpoint.compose(
        header,
        "A dependency parser",
        f"Transition-based ({model['system']}), {encoder}{size}; it reads "
        f"{', '.join(model['fields'])}.",
        summarise(header.data),
        checkpoint.scores_table(header),
        "UAS and LAS count every word, punctuation too, by gold words and tags.",
        checkpoint.data_table(header),
        maker="train_parser (Python)",
        use=(
            "seqtool parse FILE.conllu -m THIS_DIRECTORY",
            "seqtool eval-parser GOLD.conllu -m THIS_DIRECTORY",
        ),
    )
