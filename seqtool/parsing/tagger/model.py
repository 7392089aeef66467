"""The tagger and lemmatizer at work: `Tagger`, without torch; its directory, of kind "tagger"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Ints
from seqtool.core.checkpoint import Header
from seqtool.core.errors import counted
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.encoding.features import SymbolTable
from seqtool.parsing.encoding.lstm import Recurrence, bilstm_shapes, part_of
from seqtool.parsing.inputs import BATCH_SIZE, Given, annotate, annotate_each
from seqtool.parsing.model import Shapes, TreebankModel, at_work, average, in_chunks
from seqtool.parsing.sparse import words as sparse
from seqtool.parsing.tagger.config import TAGGERS, TaggerConfig, TaggerModelConfig
from seqtool.parsing.tagger.lemmas import Lemmas
from seqtool.parsing.tagger.morphology import (
    TAG_COLUMNS,
    Bundles,
    Forms,
    best_bundles,
    values_there,
)
from seqtool.parsing.unknown_words import Known
from seqtool.text.characters import Characters, filter_shapes
from seqtool.treebank.conllu import Broken
from seqtool.treebank.document import Doc
from seqtool.treebank.sentence import FEATS, FORM, LEMMA, UPOS, XPOS, Sentence

if TYPE_CHECKING:
    from seqtool.parsing.tagger.data import TaggerData

TAGGED_WORDS = 1 << 12  # words read together


class Reading(NamedTuple):
    """What a tagger computes of words, those of one sentence after another.

    Attributes:
        scores: of the columns' values, [T, values of all].
        states: of the encoder, [T, 2H].
        vectors: of the distinct forms, [U, D].
        places: which of them each word has, [T].
    """

    scores: Floats
    states: Floats
    vectors: Floats
    places: Ints


class Tagger(TreebankModel[TaggerConfig]):
    """A trained tagger and lemmatizer; the weights are those of `network.TaggerNetwork`."""

    kind = TAGGERS.kind
    config_class = TaggerConfig
    works = "tag"

    def __init__(
        self,
        config: TaggerConfig,
        symbols: SymbolTable,
        characters: Characters,
        bundles: Bundles,
        lemmas: Lemmas,
        weights: Mapping[str, Floats],
    ) -> None:
        super().__init__(config, weights)
        self.bundles, self.lemmas = bundles, lemmas
        self._sparse: sparse.SparseFeatures | None = None
        model = config.model
        if model.sparse_bits:
            self._sparse = sparse.SparseFeatures(
                model.sparse_templates,
                model.sparse_bits,
                bundles.num_values,
                weights,
            )
        attributes = self._sparse.attributes if self._sparse else ()
        self.forms = Forms(symbols, characters, weights, attributes)
        self._recurrence = Recurrence(part_of(weights, "encoder."))
        # of forms' vectors, and of states
        split = model.lexical_size + model.num_filters
        self._values = _split(weights["values.weight"], split)
        self._lemma_words = _split(weights["lemma_words.weight"], split)
        self._scripts = np.ascontiguousarray(weights["scripts.weight"].T)

    @property
    def vocabulary(self) -> Vocabulary:
        """What it knows beside its weights."""
        symbols = self.forms.symbols
        tables: dict[str, Sequence[Any]] = symbols.to_tables("lexical")
        tables["characters"] = self.forms.characters.known
        tables["bundles"] = self.bundles.names
        tables["edit_scripts"] = [astuple(script) for script in self.lemmas.scripts]
        tables["lemmas"] = [
            (upos, form, *lemmas)
            for upos, forms in self.lemmas.table.items()
            for form, lemmas in forms.items()
        ]
        return Vocabulary(tables=tables, extra={"columns": list(symbols.columns)})

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: tags and lemmas."""
        return self.bundles.names, self.lemmas.scripts, self.lemmas.table

    @classmethod
    def restore(
        cls,
        config: TaggerConfig,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
    ) -> Tagger:
        """Return the tagger that was saved; see `TreebankModel.restore`."""
        symbols = SymbolTable.read(vocabulary, "lexical")
        characters = Characters(vocabulary.texts("characters"))
        bundles = Bundles.of(vocabulary.rows("bundles"))
        lemmas = Lemmas.of(vocabulary.rows("edit_scripts"), vocabulary.rows("lemmas"))
        shapes = tagger_shapes(
            config.model,
            symbols.num_symbols,
            characters.num_symbols,
            bundles,
            len(lemmas.scripts),
        )
        return cls(config, symbols, characters, bundles, lemmas, read_weights(shapes))

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        model = header.config["model"]
        layers = counted(model["encoder_layers"], "layer")
        size = counted(header.num_parameters, "parameter")
        beside = ", with sparse features beside it" if model.get("sparse_bits") else ""
        return checkpoint.compose(
            header,
            "A tagger and lemmatizer",
            f"A bidirectional LSTM of {layers} of {model['encoder_size']} units a direction over "
            f"forms, affixes and characters{beside}, {size}; "
            "lemmas by edit scripts.",
            checkpoint.scores_table(header),
            "Shares of words in percent, by gold words; tags counts those whose UPOS, XPOS and "
            "FEATS are all right.",
            checkpoint.data_table(header),
            maker="train_tagger (Python)",
            use=("seqtool tag FILE.conllu -m THIS_DIRECTORY",),
        )

    def read(self, sentences: Sequence[Sentence], num_layers: int | None = None) -> Reading:
        """Compute what is to be known of the words of sentences.

        With `num_layers`, the states are those of this layer, and the scores mean nothing.
        """
        numbers = self.forms.numbers([row[FORM] for item in sentences for row in item.rows])
        present, inverse = np.unique(numbers, return_inverse=True)
        places = inverse.astype(np.int32)
        vectors = self.forms.vectors(present)
        lengths = np.asarray([len(sentence) for sentence in sentences], np.int32)
        by_step, words = self._recurrence.states(vectors, places, lengths, num_layers)
        states = np.empty_like(by_step)
        states[words] = by_step
        of_vectors, of_states = self._values
        scores = states @ of_states
        # what the form alone says is computed once for all words that have it
        scores += (vectors @ of_vectors + self.weights["values.bias"])[places]
        if self._sparse is not None:
            attributes = self.forms.attributes(present)
            scores += self._sparse.scores(sparse.words_of(attributes, places, lengths))
        return Reading(scores, states, vectors, places)

    @property
    def known(self) -> Known:
        """What it knows of the words that it reads."""
        return Known.of([self.forms.symbols], self.unknown_share)

    def tune(self, data: TaggerData) -> None:
        """Note how many words of the validation part it does not know."""
        forms = data.column(data.dev, FORM)
        self.unknown_share = self.known.share_of(chain.from_iterable(forms))

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has."""
        return self._recurrence.num_layers

    def sentence_states(
        self, sentences: Sequence[Sentence], layer: int | None = None
    ) -> list[Floats]:
        """Return the encoder's states of the words of sentences, [words, 2H] each.

        Of an ensemble, they are those of its first member.

        Args:
            sentences: are not changed.
            layer: of the encoder, from 1; the last one when not given.
        """
        with at_work():
            states = self.read(sentences, layer).states
        return np.split(states, np.cumsum([len(sentence) for sentence in sentences])[:-1])

    def tag(self, sentences: Sequence[Sentence], *, retag: bool = False) -> None:
        """Give the words of sentences UPOS, XPOS, FEATS and lemmas.

        What is there already is kept, and what is predicted agrees with it where it can: see
        `morphology.values_there`. A word has no lemma if that is `_`.

        Args:
            sentences: are changed.
            retag: predict everything, whatever is there.
        """
        sentences = [sentence for sentence in sentences if sentence.rows]
        if not sentences:
            return
        rows = [row for sentence in sentences for row in sentence.rows]
        there = np.full((len(rows), len(TAG_COLUMNS)), -1, np.int32)
        if not retag:
            values = self.bundles.values
            there = np.concatenate([values_there(item.rows, values) for item in sentences])
        with at_work():
            readings = [member.read(sentences) for member in self.members]
            scores = average([reading.scores for reading in readings])
            best = np.empty(len(rows), np.int32)
            best_bundles(scores, self.bundles.table, self.bundles.starts, there, best)
            # before lemmas, which are looked up by form and UPOS
            _write_tags(sentences, [self.bundles.names[i] for i in best.tolist()], retag=retag)
            self._write_lemmas(rows, best, readings, retag=retag)

    def _write_lemmas(
        self, rows: Sequence[list[str]], best: Ints, readings: Sequence[Reading], *, retag: bool
    ) -> None:
        open_words: list[int] = []
        choices: list[Sequence[str]] = []
        met = self.lemmas.met
        for word, row in enumerate(rows):
            if row[LEMMA] != "_" and not retag:
                continue
            lemmas = met(row[FORM], row[UPOS])
            if len(lemmas) == 1:
                row[LEMMA] = lemmas[0]
            else:
                open_words.append(word)
                choices.append(lemmas)
        if not open_words:
            return
        scores = average(
            [
                member.script_scores(reading, open_words, best[open_words])
                for member, reading in zip(self.members, readings, strict=True)
            ]
        )
        for place, (word, lemmas) in enumerate(zip(open_words, choices, strict=True)):
            rows[word][LEMMA] = self.lemmas.choose(rows[word][FORM], lemmas, scores[place])

    def script_scores(self, reading: Reading, words: Sequence[int], bundles: Ints) -> Floats:
        """Return the scores of the edit scripts of some words, [W, scripts], by their tags."""
        of_vectors, of_states = self._lemma_words
        hidden: Floats = reading.states[words] @ of_states
        hidden += reading.vectors[reading.places[words]] @ of_vectors
        hidden += self.weights["lemma_words.bias"]
        hidden += self.weights["lemma_bundles.weight"][bundles]
        np.maximum(hidden, 0.0, out=hidden)
        scores: Floats = hidden @ self._scripts + self.weights["scripts.bias"]
        return scores

    def __call__(self, given: Given, *, retag: bool = False) -> Doc:
        """Return sentences, or whatever else is given but plain text, with tags and lemmas.

        Args:
            given: sentences as lists of words; a `pathlib.Path` of CoNLL-U; a `Doc` or sentences;
                `conllu.TokenList`s; a document of spaCy. See `seqtool.parsing.inputs`.
            retag: predict also tags and lemmas that are there.

        Raises:
            TypeError: something else is given.
            ModelError: a text, which a tagger does not split.
            DataError: a file that cannot be read, or what no sentence can be made of.
        """
        return annotate(given, partial(self.tag_stream, retag=retag), None, what=self.kind)

    def pipe(
        self, inputs: Iterable[Given], *, retag: bool = False, batch_size: int = BATCH_SIZE
    ) -> Iterator[Doc]:
        """Give a document for each input, in order; see `Pipeline.pipe`."""
        work = partial(self.tag_stream, retag=retag)
        return annotate_each(inputs, work, None, what=self.kind, batch_size=batch_size)

    def tag_stream(
        self, items: Iterable[Sentence | Broken], *, retag: bool = False
    ) -> Iterator[Sentence | Broken]:
        """Tag sentences in chunks; broken ones pass through in their places."""
        return in_chunks(items, TAGGED_WORDS, partial(self.tag, retag=retag))


def _split(weights: Floats, width: int) -> tuple[Floats, Floats]:
    """Weights [O, D + 2H] as [D, O] and [2H, O]."""
    return np.ascontiguousarray(weights[:, :width].T), np.ascontiguousarray(weights[:, width:].T)


def _write_tags(
    sentences: Sequence[Sentence], bundles: Sequence[tuple[str, str, str]], *, retag: bool
) -> None:
    """Write the tags of words, but not over those that are there unless `retag`."""
    begin = 0
    for sentence in sentences:
        of_words = bundles[begin : begin + len(sentence)]
        begin += len(sentence)
        if retag:
            for row, bundle in zip(sentence.rows, of_words, strict=True):
                row[UPOS : FEATS + 1] = bundle
            continue
        missing = [column for column in (XPOS, FEATS) if set(sentence.column(column)) == {"_"}]
        for row, bundle in zip(sentence.rows, of_words, strict=True):
            if row[UPOS] == "_":
                row[UPOS] = bundle[0]
            for column in missing:
                row[column] = bundle[column - UPOS]


def tagger_shapes(
    config: TaggerModelConfig,
    num_lexical: int,
    num_characters: int,
    bundles: Bundles,
    num_scripts: int,
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a tagger, by its name in `network.TaggerNetwork`."""
    units, width = config.encoder_size, config.lexical_size + config.num_filters
    shapes: dict[str, tuple[int, ...]] = {
        "lexical.weight": (num_lexical, config.lexical_size),
        **filter_shapes(
            num_characters, config.character_size, config.num_filters, config.filter_width
        ),
        "values.weight": (bundles.num_values, width + 2 * units),
        "values.bias": (bundles.num_values,),
        "lemma_words.weight": (config.lemma_size, width + 2 * units),
        "lemma_words.bias": (config.lemma_size,),
        "lemma_bundles.weight": (len(bundles), config.lemma_size),
        "scripts.weight": (num_scripts, config.lemma_size),
        "scripts.bias": (num_scripts,),
    }
    if config.sparse_bits:
        shapes |= sparse.shapes(config.sparse_bits, bundles.num_values)
    return shapes | bilstm_shapes("encoder", width, units, config.encoder_layers)
