"""The face of a parser: load it, parse, stream, k-best trees, traces, marginals of arcs.

`TreeParser` documents what every parser is asked. `Parser` answers by the weights of one network or
of an ensemble, without torch; `vote.Vote` by several parsers of different kinds.

Shapes: n words of a sentence, whose head 0 is ROOT; T rows of token arrays.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Floats, Ints
from seqtool.core.checkpoint import Header
from seqtool.core.vocabulary import Vocabulary
from seqtool.parsing.encoding.features import (
    NONE_TYPE,
    ROOT_TYPE,
    SymbolTable,
    TokenArrays,
    Types,
    encode,
)
from seqtool.parsing.inputs import BATCH_SIZE, Given, annotate, annotate_each
from seqtool.parsing.missing_columns import ColumnCheck
from seqtool.parsing.model import AT_WORK, Shapes, TreebankModel, at_work, chunks
from seqtool.parsing.parser.calibration import (
    CALIBRATED_BEAMS,
    CALIBRATIONS,
    TEMPERATURE_BEAM,
    TEMPERATURES,
    Calibration,
    calibrated,
    calibrations_from_json,
    calibrations_to_json,
    fit_calibration,
    fit_temperature,
    mean_calibrations,
    needs_temperature,
)
from seqtool.parsing.parser.config import KIND, PREDICTED_TAGS, ParserConfig
from seqtool.parsing.parser.decoder import (
    ArcTable,
    Decoder,
    RankedTree,
    check_search,
)
from seqtool.parsing.parser.families import describe_family, make_decoder, parser_shapes
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.unknown_words import Known
from seqtool.text.characters import Characters
from seqtool.treebank.conllu import (
    Broken,
    Item,
    SentenceBatch,
    refuse_no_sentence,
    sentences_of,
)
from seqtool.treebank.derivation import Derivation, Trace
from seqtool.treebank.document import Doc
from seqtool.treebank.layouts import begins_text
from seqtool.treebank.misc import RANK, SCORE, is_of_tree
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.scanner import LabelTexts, TextTable
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, Sentence

if TYPE_CHECKING:
    from seqtool.parsing.parser.data import GoldTrees, TrainingData

PARSED_WORDS = 1 << 13  # parsed together: enough for the lanes to be full most of the time
RANKED_WORDS = 1 << 10  # of k-best trees and traces, of which much is kept until they are given
GROUP_ARCS = 1 << 16  # of sentences that the decoder is asked for together
TABLE_BYTES = 192 << 20  # of products of types, of each classifier; beyond it, all are dropped
TUNING_WORDS = 50_000  # of the validation part, to which calibrations are fitted

CHARACTERS = "characters"  # the known ones, where they are stored
VALIDATED_BEAM = "validated_with_beam"  # of what a header says of the data, where it is not 1

Tree = tuple[list[int], list[str]]
Answer = TypeVar("Answer")


class ScoredTree(NamedTuple):
    """One of the k best trees of a sentence, lifted arcs put back.

    Attributes:
        heads: n numbers; 0 is ROOT.
        deprels: n labels.
        score: see `decoder.RankedTree`.
    """

    heads: list[int]
    deprels: list[str]
    score: float


ChunkParser: TypeAlias = Callable[[Sequence[Item]], None]
Ranker: TypeAlias = Callable[[Sequence[Sentence]], Iterator[list[ScoredTree]]]


class TreeParser(ABC):
    """What every parser is asked; sentences without columns that it reads are refused.

    Each method takes the following.

        items: what `read_conllu`, `read_items` or `read_batches` gives; broken sentences pass
            through in their places. Memory does not grow with them.
        beam: hypotheses per sentence.
        allow_missing: parse also sentences without columns that the parser reads.

    Errors come when the answers are iterated: DataError where columns are missing, TypeError where
    an item is no sentence, ConfigError where a beam or a number of trees is no number from 1 on.

    Attributes:
        has_tagger: whether it tags words itself, as a pipeline does.
        votes: whether its trees are those of several parsers that vote.
        calibrations: what makes probabilities of arcs say how often these are right, by beam; none
            where none were fitted.
    """

    kind: ClassVar[str]
    has_tagger = False
    votes = False
    reads_batches = False
    calibrations: dict[int, Calibration]

    @property
    def is_calibrated(self) -> bool:
        """Whether probabilities of arcs say how often these are right."""
        return bool(self.calibrations)

    def __call__(self, given: Given, **options: Any) -> Doc:
        """Return sentences, or whatever else is given but plain text, with trees.

        Args:
            given: a `pathlib.Path` of CoNLL-U; a `Doc` or sentences; `conllu.TokenList`s; a
                document of spaCy; for a parser that reads no tags, also sentences as lists of
                words. See `seqtool.parsing.inputs`.
            options: those of `parse_stream`; `Token.score` has the scores.

        Raises:
            TypeError: something else is given.
            ModelError: a text, which a parser does not split.
            DataError: a file that cannot be read, or what no sentence can be made of.
        """
        return annotate(given, partial(self.parse_stream, **options), None, what=self.kind)

    def pipe(
        self, inputs: Iterable[Given], *, batch_size: int = BATCH_SIZE, **options: Any
    ) -> Iterator[Doc]:
        """Give a document for each input, in order; see `Pipeline.pipe`."""
        work = partial(self.parse_stream, **options)
        return annotate_each(inputs, work, None, what=self.kind, batch_size=batch_size)

    def parse(self, sentences: Iterable[Sentence], **options: Any) -> None:
        """Give every sentence a tree; options and errors are those of `parse_stream`."""
        for _ in self.parse_stream(map(refuse_no_sentence, sentences), **options):
            pass

    def parse_stream(
        self,
        items: Iterable[Item],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> Iterator[Item]:
        """Give the items with new trees, in order.

        With `scores`, column MISC has how probable it is that each word's head is right, as
        `Score=0.987`; batches come back as their sentences, as they do where parsers vote.
        """
        check_search(beam)
        parse = self._chunk_parser(beam, allow_missing, scores)
        if scores or not self.reads_batches:
            items = sentences_of(items)
        for chunk in chunks(items, PARSED_WORDS):
            parse(chunk)
            yield from chunk

    @abstractmethod
    def _chunk_parser(self, beam: int, allow_missing: bool, scores: bool) -> ChunkParser:
        """Return what gives the sentences of the chunks of a text trees, chunk by chunk."""

    def nbest(
        self, items: Iterable[Item], num: int, *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[list[Sentence] | Broken]:
        """Give the `num` best trees of each sentence, the best first.

        Each tree is a copy of the sentence with comments of its rank and its score, a natural
        log-probability where the parser has probabilities:

            # parse_rank = 2
            # parse_score = -1.2345

        The trees of a sentence differ, and there may be fewer than asked for. No fewer hypotheses
        than `num` are followed. Trees of a vote differ in their heads, and their scores are sums of
        votes, a parser's weight being its share of all weights.
        """
        check_search(beam, num)
        rank = self._ranker(num, beam, allow_missing)
        for chunk in chunks(sentences_of(items), RANKED_WORDS):
            ranked = rank([item for item in chunk if isinstance(item, Sentence)])
            for item in chunk:
                assert not isinstance(item, SentenceBatch)
                yield item if isinstance(item, Broken) else with_trees(item, next(ranked))

    @abstractmethod
    def _ranker(self, num: int, beam: int, allow_missing: bool) -> Ranker:
        """Return what gives the k best trees of the sentences of a text, chunk by chunk."""

    def trace(self, sentence: Sentence, *, beam: int = 1, allow_missing: bool = False) -> Trace:
        """Return how the tree of a sentence, which is not changed, is built; see `traces`."""
        copy = refuse_no_sentence(sentence).copy()
        (trace,) = self.traces([copy], beam=beam, allow_missing=allow_missing)
        assert isinstance(trace, Trace)
        return trace

    @abstractmethod
    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Give each sentence with its new tree, and how that is built.

        Raises:
            ModelError: the parser, or a vote, builds no trees step by step.
        """

    @abstractmethod
    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give the marginals of the heads of each sentence, [n, 1 + n]: see `ArcTable`.

        Sentences may miss columns. Those of a vote are the parsers' mean by their weights.
        """


class Parser(TreebankModel[ParserConfig], TreeParser):
    """A trained parser; its weights are those of the network of its family.

    In its settings, nothing is left to be chosen.

    Attributes:
        types: of words, those met so far.
        deprels: the labels of its trees, lifted arcs put back or not; the first ones are those of
            `labels.names`.
        decoder: finds its trees.
    """

    kind = KIND
    config_class = ParserConfig
    works = "parse"
    reads_batches = True

    def __init__(
        self, config: ParserConfig, types: Types, labels: Labels, weights: Mapping[str, Floats]
    ) -> None:
        super().__init__(config, weights)
        self.types, self.labels = types, labels
        self.calibrations = {}
        self.decoder = make_decoder(config, labels, weights)
        self._names = np.asarray((*labels.names, ""), object)
        self._is_lifted = np.asarray([LIFTED in label for label in self._names])
        own = [label.partition(LIFTED)[0] for label in labels.names]
        # the label of a lifted arc that is put back may be no label of the parser
        self.deprels = tuple(dict.fromkeys([*labels.names, *own]))
        self._own_ids = np.asarray([*map(self.deprels.index, own), -1], np.int32)

    @property
    def vocabulary(self) -> Vocabulary:
        """What it knows beside its weights."""
        types = self.types
        tables: dict[str, Any] = types.lexical.to_tables("lexical") | types.tags.to_tables("tags")
        extra: dict[str, Any] = {"columns": list(types.lexical.columns)}
        if types.known_characters is not None:
            tables[CHARACTERS] = types.known_characters
        if types.empty_shares is not None:
            extra["empty_shares"] = list(types.empty_shares)
        if self.calibrations:
            extra[CALIBRATIONS] = calibrations_to_json(self.calibrations)
        labels = {"arc_labels": self.labels.arcs, "root_labels": self.labels.roots}
        return Vocabulary(tables=tables | labels, extra=extra)

    @property
    def stored_as(self) -> type[np.floating[Any]]:
        """The precision of weights in the file; see `TreebankModel`."""
        return np.float16 if self.config.model.classifier == "linear" else np.float32

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: what they read, and what they build."""
        types, config = self.types, self.config
        reads = types.lexical, types.tags, types.known_characters
        # scores of one kind only can be averaged, so the loss is one
        return *reads, self.labels, config.model, config.learning.loss

    @classmethod
    def restore(
        cls,
        config: ParserConfig,
        vocabulary: Vocabulary,
        read_weights: Callable[[Shapes], dict[str, Floats]],
    ) -> Parser:
        """Return the parser that was saved; see `TreebankModel.restore`."""
        lexical, tags = (SymbolTable.read(vocabulary, fields) for fields in ("lexical", "tags"))
        labels = Labels(vocabulary.texts("arc_labels"), vocabulary.texts("root_labels"))
        characters = None
        if config.model.character_width:
            characters = Characters(vocabulary.texts(CHARACTERS))
        types = Types(lexical, tags, vocabulary.extra.get("empty_shares"), characters)
        numbers = lexical.num_symbols, tags.num_symbols
        shapes = parser_shapes(config.model, *numbers, labels, types.num_characters)
        parser = cls(config, types, labels, read_weights(shapes))
        parser.calibrations = calibrations_from_json(vocabulary.extra.get(CALIBRATIONS))
        return parser

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        learning = header.config["learning"]
        is_global = learning["loss"] == "global"
        num = header.data.get(VALIDATED_BEAM, learning["global_beam"] if is_global else 1)
        beam = f" --beam {num}" if num > 1 else ""
        searched = f", with a beam of {num}" if num > 1 else ""
        tags = "predicted tags" if header.data.get(PREDICTED_TAGS) else "tags"
        trained = ", globally trained" if is_global else ""
        fields = ", ".join(header.config["model"]["fields"])
        return checkpoint.compose(
            header,
            "A dependency parser",
            f"{describe_family(header)}{trained}; it reads {fields}.",
            checkpoint.scores_table(header),
            f"UAS and LAS count every word, punctuation too, by gold words and {tags}{searched}.",
            checkpoint.data_table(header),
            maker="train_parser (Python)",
            use=(
                f"seqtool parse FILE.conllu -m THIS_DIRECTORY{beam}",
                f"seqtool eval-parser GOLD.conllu -m THIS_DIRECTORY{beam}",
            ),
        )

    def ensemble(self, others: Sequence[Parser]) -> Parser:
        """Return an ensemble of this parser and others; see `TreebankModel.ensemble`."""
        if not others:
            return self
        together = super().ensemble(others)
        together.calibrations = mean_calibrations([one.calibrations for one in together.members])
        together.decoder = together._new_decoder()
        return together

    def copy(self) -> Parser:
        """Return a copy with types of its own, which it forgets without the others."""
        other = super().copy()
        other.types = self.types.as_new()
        other.decoder = other._new_decoder()
        return other

    def _new_decoder(self) -> Decoder:
        """Return a decoder that has met no types yet; of an ensemble, of all members."""
        first, *others = [make_decoder(m.config, m.labels, m.weights) for m in self.members]
        return first.joined(others) if others else first

    @property
    def known(self) -> Known:
        """What it knows of the words that it reads."""
        return Known.of((self.types.lexical, self.types.tags), self.unknown_share)

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference; not where the best tree is found without one."""
        return self.decoder.has_beam

    @property
    def longest(self) -> int | None:
        """Words of the longest sentence that gets its best tree; None if there is no such limit."""
        return self.decoder.longest

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has; 0 without one."""
        return self.decoder.num_layers

    def tune(self, data: TrainingData) -> None:
        """Fit temperature and calibrations on the validation part; see `TreebankModel.tune`.

        The temperature comes first, as probabilities of a beam depend on it.
        """
        self.unknown_share = self._share_of_unknown(data.dev.arrays)
        parts = _tuning_parts(data.dev)
        if needs_temperature(self.config):
            value = fit_temperature(self._num_right(parts))
            learning = dataclasses.replace(self.config.learning, beam_temperature=value)
            self.config = dataclasses.replace(self.config, learning=learning)
            self.decoder.temperature = value  # type: ignore[attr-defined]  # it has transitions
        beams = {*CALIBRATED_BEAMS}
        if self.config.learning.loss == "global":  # the beam that it is to be used with
            beams.add(self.config.learning.global_beam)
        for beam in sorted(beams):
            probabilities, are_right = [], []
            for part in parts:
                tables = self.arc_tables(part.arrays, beam=beam)
                for table, (gold, _) in zip(tables, part.trees, strict=True):
                    probabilities.append(table.of_tree(table.heads))
                    are_right.append(table.heads == np.asarray(gold))
            self.calibrations[beam] = fit_calibration(
                np.concatenate(probabilities), np.concatenate(are_right)
            )

    def _share_of_unknown(self, arrays: TokenArrays) -> float | None:
        """Return how many of the words it does not know; None where it reads no forms."""
        columns = self.types.lexical.columns
        if FORM not in columns:
            return None
        place = columns.index(FORM)
        forms = ["", "", *(key[place] for key in self.types.texts())]  # those of NONE and ROOT
        return self.known.share_of(forms[number] for number in arrays.types.tolist())

    def _num_right(self, parts: Sequence[GoldTrees]) -> list[int]:
        """Return how many words are right with each temperature that is tried."""
        decoder: Any = self.decoder
        sums = [0] * len(TEMPERATURES)
        with at_work():
            self.prepare()
            for part in parts:
                decoded = decoder.decoded(part.arrays, TEMPERATURES, beam=TEMPERATURE_BEAM)
                for place, answer in enumerate(decoded):
                    sums[place] += part.num_right(self._named(part.arrays, *answer))[1]
        return sums

    def encode(
        self, sentences: Iterable[Sentence], check: ColumnCheck | None = None
    ) -> TokenArrays:
        """Return sentences as token arrays; types are forgotten if too many were met.

        Answers that are open go on with the types and the decoder that they began with.

        Raises:
            DataError: columns are missing, as `check` finds.
        """
        self.limit_types()
        arrays = encode(sentences, self.types)
        if check is not None:
            check.refuse(sentences, arrays, self.types)
        return arrays

    def limit_types(self) -> None:
        """Begin anew, without any types, if the decoder holds too much of them.

        Its memory is used again, which is faster, unless answers are open that go by it.
        """
        if self.decoder.num_bytes > TABLE_BYTES:
            self.types = self.types.as_new()
            if any(getgeneratorstate(answers) != GEN_CLOSED for answers in _OPEN):
                self.decoder = self._new_decoder()
            else:
                self.decoder.clear()

    def prepare(self) -> None:
        """Make ready for the types that were met since the last time."""
        self.decoder.prepare(self.types)

    def sentence_states(
        self,
        sentences: Sequence[Sentence],
        layer: int | None = None,
        *,
        allow_missing: bool = False,
    ) -> list[Floats]:
        """Return the encoder's states of the words of sentences, [n, 2H] each.

        There is an encoder. Of an ensemble, they are those of its first member.

        Args:
            sentences: one or more, which are not changed.
            layer: of the encoder, from 1; the last one when not given.
            allow_missing: read also sentences without columns that the parser reads.

        Raises:
            DataError: there are such sentences, and they are not allowed.
        """
        check = None if allow_missing else ColumnCheck(self.types, from_start=False)
        with at_work():
            arrays = self.encode(sentences, check)
            self.prepare()
            states = self.decoder.states(arrays, layer)
        begins = arrays.tokens + 1  # behind its ROOT
        return [states[i : i + n] for i, n in zip(begins, arrays.lengths, strict=True)]

    def heads_and_labels(self, arrays: TokenArrays, *, beam: int = 1) -> tuple[Ints, Ints]:
        """Parse encoded sentences.

        Returns:
            Token arrays of heads and label ids; -1 in the rows of NONE and ROOT. Lifted arcs are
            where the system put them.

        Raises:
            ConfigError: a beam of no hypotheses.
        """
        check_search(beam)
        with at_work():
            self.prepare()
            return self.decoder.decode(arrays, beam=beam)

    def trees(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Tree]:
        """Parse encoded sentences: heads and labels of each, lifted arcs put back."""
        return self._named(arrays, *self.heads_and_labels(arrays, beam=beam))

    def _named(self, arrays: TokenArrays, heads: Ints, label_ids: Ints) -> Iterator[Tree]:
        """Give the trees of token arrays of heads and label ids, lifted arcs put back."""
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
        lifted = np.flatnonzero(self._is_lifted[label_ids])
        places = np.unique(np.searchsorted(arrays.tokens, lifted, side="right") - 1)
        return list(places.tolist())

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[ScoredTree]]:
        """Give the `num` best trees of each encoded sentence, the best first.

        They differ from each other, and there may be fewer; see `Decoder.ranked`. The first one is
        that of `trees` where `num` is 1; beyond that, a search that looks further may have found a
        better one.
        """
        check_search(beam, num)
        return _opened(self._ranked(self.decoder, self.types, arrays, num, beam))

    def _ranked(
        self, decoder: Decoder, types: Types, arrays: TokenArrays, num: int, beam: int
    ) -> Generator[list[ScoredTree], None, None]:
        def asked(arrays: TokenArrays, num: int) -> Iterator[list[RankedTree]]:
            return _answers(decoder, types, arrays, partial(decoder.ranked, num=num, beam=beam))

        for place, ranked in enumerate(asked(arrays, num)):
            trees, wanted = self._different(ranked), num
            # trees that differ in their lifted arcs alone become one when these are put back
            while len(trees) < num and len(ranked) == wanted:
                wanted *= 2
                (ranked,) = asked(arrays.part(np.asarray([place])), wanted)
                trees = self._different(ranked)
            yield trees[:num]

    def _different(self, ranked: Sequence[RankedTree]) -> list[ScoredTree]:
        """Return trees that differ when lifted arcs are put back, the best first."""
        trees: dict[tuple[tuple[int, ...], tuple[str, ...]], ScoredTree] = {}
        for heads, label_ids, score in ranked:
            tree = heads.tolist(), self._names[label_ids].tolist()
            if self._is_lifted[label_ids].any():
                tree = deprojectivise(*tree)
            trees.setdefault((tuple(tree[0]), tuple(tree[1])), ScoredTree(*tree, score))
        return list(trees.values())

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give the marginals of the arcs of each encoded sentence, lifted arcs put back.

        Where an arc of the sentence's tree is put back, it changes places with the one that it
        becomes. The label ids are places in `deprels`.
        """
        check_search(beam)
        ask = partial(self.decoder.arc_tables, beam=beam)
        return map(self._put_back, _answers(self.decoder, self.types, arrays, ask))

    def _put_back(self, table: ArcTable) -> ArcTable:
        """Return a table by the parser's own labels, lifted arcs of the tree put back."""
        probabilities, label_ids, heads = table
        of_tree = label_ids[np.arange(len(heads)), heads]
        label_ids = self._own_ids[label_ids]
        if self._is_lifted[of_tree].any():
            tree = heads.tolist(), self._names[of_tree].tolist()
            new_heads = np.asarray(deprojectivise(*tree)[0], np.int32)
            moved = np.flatnonzero(new_heads != heads)
            old, new = (moved, heads[moved]), (moved, new_heads[moved])
            for values in (probabilities, label_ids):
                values[old], values[new] = values[new], values[old]
            heads = new_heads
        return ArcTable(probabilities, label_ids, heads)

    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give the marginals of heads; see `TreeParser.head_probabilities`."""
        with AT_WORK:
            tables = self.arc_tables(self.encode(sentences), beam=beam)
        for table in tables:
            yield table.probabilities

    def derivations(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Derivation]:
        """Give how the tree of each encoded sentence is built; see `Decoder.derivations`."""
        check_search(beam)
        ask = partial(self.decoder.derivations, beam=beam)
        return _answers(self.decoder, self.types, arrays, ask)

    def traces(
        self, items: Iterable[Item], *, beam: int = 1, allow_missing: bool = False
    ) -> Iterator[Trace | Broken]:
        """Give each sentence with its new tree, and how that is built; see `TreeParser.traces`."""
        check = None if allow_missing else ColumnCheck(self.types)
        for chunk in chunks(sentences_of(items), RANKED_WORDS):
            sentences = [item for item in chunk if isinstance(item, Sentence)]
            with AT_WORK:  # until the answers hold on to the numbers of types
                derivations = self.derivations(self.encode(sentences, check), beam=beam)
            for item in chunk:
                if isinstance(item, Sentence):
                    derivation = next(derivations)
                    arcs = derivation.arcs
                    tree = deprojectivise([a.head for a in arcs], [a.label for a in arcs])
                    item.set_tree(*tree)
                    yield Trace(item, derivation)
                elif isinstance(item, Broken):
                    yield item

    def _ranker(self, num: int, beam: int, allow_missing: bool) -> Ranker:
        check = None if allow_missing else ColumnCheck(self.types)

        def rank(sentences: Sequence[Sentence]) -> Iterator[list[ScoredTree]]:
            with AT_WORK:  # until the answers hold on to the numbers of types
                return self.ranked(self.encode(sentences, check), num, beam=beam)

        return rank

    def _chunk_parser(self, beam: int, allow_missing: bool, scores: bool) -> ChunkParser:
        check = None if allow_missing else ColumnCheck(self.types)
        batch_parser = _BatchParser(self, beam, check)

        def parse(chunk: Sequence[Item]) -> None:
            sentences = [item for item in chunk if isinstance(item, Sentence)]
            batches = [item for item in chunk if isinstance(item, SentenceBatch)]
            with AT_WORK:
                if sentences:
                    arrays = self.encode(sentences, check)
                    set_trees = self._set_scored_trees if scores else self._set_trees
                    set_trees(sentences, arrays, beam)
                if batches:
                    batch_parser.parse(batches)

        return parse

    def _set_trees(self, sentences: Sequence[Sentence], arrays: TokenArrays, beam: int) -> None:
        numbers = [*map(str, range(1 + max(arrays.lengths.tolist())))]
        for sentence, tree in zip(sentences, self.trees(arrays, beam=beam), strict=True):
            # as Sentence.set_tree, but a number becomes a text once for all sentences
            for row, head, deprel in zip(sentence.rows, *tree, strict=True):
                row[HEAD] = numbers[head]
                row[DEPREL] = deprel
            sentence.drop_scores()

    def _set_scored_trees(
        self, sentences: Sequence[Sentence], arrays: TokenArrays, beam: int
    ) -> None:
        names = np.asarray(self.deprels, object)
        for sentence, table in zip(sentences, self.arc_tables(arrays, beam=beam), strict=True):
            heads = table.heads
            labels = table.label_ids[np.arange(len(heads)), heads]
            sentence.set_tree(heads.tolist(), names[labels].tolist())
            likely = calibrated(table.of_tree(heads), self.calibrations, beam).tolist()
            # of one word there is no other tree
            sentence.set_scores(likely if len(heads) > 1 else [1.0])


_OPEN: WeakSet[Generator[Any, None, None]] = WeakSet()  # answers of decoders, in all parsers


def _opened(answers: Generator[Answer, None, None]) -> Generator[Answer, None, None]:
    """Note that answers are open, until they are exhausted or nobody holds them."""
    with AT_WORK:  # as the set must not grow where it is looked at
        _OPEN.add(answers)
    return answers


def _answers(
    decoder: Decoder,
    types: Types,
    arrays: TokenArrays,
    ask: Callable[[TokenArrays], Iterator[Answer]],
) -> Iterator[Answer]:
    """Return what a decoder says of each sentence, on one thread as `heads_and_labels`."""
    return _opened(_asked(decoder, types, arrays, ask))


def _asked(
    decoder: Decoder,
    types: Types,
    arrays: TokenArrays,
    ask: Callable[[TokenArrays], Iterator[Answer]],
) -> Generator[Answer, None, None]:
    """Ask for several sentences at a time: to limit threads takes as long as a short one."""
    with at_work():
        decoder.prepare(types)
    answers = ask(arrays)
    groups = np.cumsum(arrays.lengths.astype(np.int64) ** 2) // GROUP_ARCS
    for num in np.unique(groups, return_counts=True)[1].tolist():
        # not between two groups: what is done there is the caller's
        with at_work():
            group = list(islice(answers, num))
        yield from group


def _tuning_parts(gold: GoldTrees) -> list[GoldTrees]:
    """Return the first sentences, in parts, as a search keeps its history for marginals."""
    ends = np.cumsum(gold.arrays.lengths, dtype=np.int64)
    num = max(1, int(np.searchsorted(ends, TUNING_WORDS)))
    cuts = np.flatnonzero(np.diff(ends[:num] // PARSED_WORDS)) + 1
    return [
        dataclasses.replace(
            gold, arrays=gold.arrays.part(places), trees=[gold.trees[place] for place in places]
        )
        for places in np.split(np.arange(min(num, len(ends))), cuts)
    ]


class _BatchParser:
    """Parses batches of sentences; it keeps the types of the texts that they number."""

    def __init__(self, parser: Parser, beam: int, check: ColumnCheck | None) -> None:
        self._parser, self._beam, self._check = parser, beam, check
        self._label_ids = {name: number for number, name in enumerate(parser.deprels)}
        self._label_texts = LabelTexts(list(parser.deprels))
        self._numbered: tuple[TextTable, Types] | None = None  # whose numbers are these:
        self._types: Ints = np.empty(0, np.int32)  # of texts, by number; -1: not asked for yet

    def parse(self, batches: Sequence[SentenceBatch]) -> None:
        """Give all sentences trees."""
        parser = self._parser
        arrays, rows = self._encode(batches)
        if self._check is not None:
            sentences = (sentence for batch in batches for sentence in batch.to_sentences())
            self._check.refuse(sentences, arrays, parser.types)
        heads, label_ids = parser.heads_and_labels(arrays, beam=self._beam)
        names = self._label_texts.names
        for place in parser.with_lifted_arcs(arrays, label_ids):
            begin = arrays.tokens[place] + 1
            words = slice(begin, begin + arrays.lengths[place])
            lifted = [names[label] for label in label_ids[words]]
            heads[words], deprels = deprojectivise(heads[words].tolist(), lifted)
            label_ids[words] = [self._label_ids[deprel] for deprel in deprels]
        heads, label_ids = heads[rows], label_ids[rows]
        begin = 0
        for batch in batches:
            words = slice(begin, begin + len(batch.words))
            batch.trees = heads[words], label_ids[words], self._label_texts
            begin = words.stop

    def _encode(self, batches: Sequence[SentenceBatch]) -> tuple[TokenArrays, Ints]:
        """Return batches as token arrays, and the rows of their words."""
        self._parser.limit_types()
        word_types = np.concatenate([self._types_of(b.texts, b.numbers) for b in batches])
        lengths = np.concatenate([batch.lengths for batch in batches]).astype(np.int32)
        # a row for NONE, then for each sentence's ROOT and words
        tokens = (1 + np.cumsum(lengths + 1) - (lengths + 1)).astype(np.int32)
        types = np.full(1 + len(lengths) + len(word_types), ROOT_TYPE, np.int32)
        types[0] = NONE_TYPE
        is_word = np.ones(len(types), np.bool_)
        is_word[0] = is_word[tokens] = False
        types[is_word] = word_types
        return TokenArrays(types, tokens, lengths), np.flatnonzero(is_word).astype(np.int32)

    def _types_of(self, texts: TextTable, numbers: Ints) -> Ints:
        """Return the parser's types of words, by the numbers of their texts."""
        types = self._parser.types
        # the reader may begin a new table, and the parser new types, at any time
        if self._numbered is None or self._numbered != (texts, types):
            self._numbered, self._types = (texts, types), np.empty(0, np.int32)
        if len(self._types) < len(texts):
            new = np.full(len(texts) - len(self._types), -1, np.int32)
            self._types = np.concatenate((self._types, new))
        unknown = np.unique(numbers[self._types[numbers] < 0])
        if len(unknown):
            # as rows of ten columns, of which types read only FORM to FEATS
            columns = [["", *text.split("\t")] for text in texts.texts(unknown)]
            self._types[unknown] = types.numbers(columns)
        return self._types[numbers]


def with_trees(sentence: Sentence, trees: Sequence[ScoredTree]) -> list[Sentence]:
    """Return a copy of a sentence for each of its trees, with comments of their ranks."""
    others = [line for line in sentence.comments if not is_of_tree(line)]
    copies = []
    for rank, tree in enumerate(trees, start=1):
        if rank > 1:  # what begins with the sentence begins once
            others = [line for line in others if not begins_text(line)]
        copy = sentence.copy()
        copy.set_tree(tree.heads, tree.deprels)
        copy.comments = [*others, f"# {RANK} = {rank}", f"# {SCORE} = {tree.score:.4f}"]
        copies.append(copy)
    return copies


load_model = Parser.load
