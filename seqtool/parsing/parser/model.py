"""The parser at work: `Parser`, without torch; its directory, of kind "parser"."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from seqtool.core import checkpoint
from seqtool.core.arrays import Bools, Doubles, Floats, Ints
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
from seqtool.parsing.model import AT_WORK, Shapes, TreebankModel, at_work
from seqtool.parsing.parser import calibration, temperature
from seqtool.parsing.parser.calibration import Calibration
from seqtool.parsing.parser.columns import ColumnCheck, refuse_lacking
from seqtool.parsing.parser.config import KIND, ParserConfig
from seqtool.parsing.parser.data import PREDICTED, GoldTrees, TrainingData
from seqtool.parsing.parser.decoder import ArcTable, Decoder, RankedTree, check_search
from seqtool.parsing.parser.details import DetailedParser, ScoredTree
from seqtool.parsing.parser.families import describe, make_decoder, weight_shapes
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.stream import CHUNK_WORDS, ParsesInputs, in_stream
from seqtool.parsing.parser.transition.decoder import TransitionDecoder
from seqtool.parsing.unknown import Known
from seqtool.text.characters import Characters
from seqtool.treebank.conllu import Item, SentenceBatch, refuse_no_sentence, sentences_of
from seqtool.treebank.derivation import Derivation
from seqtool.treebank.projectivity import LIFTED, deprojectivise
from seqtool.treebank.scanner import LabelTexts, TextTable
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, Sentence

GROUP_ARCS = 1 << 16  # of sentences that are asked for together
TABLE_BYTES = 192 << 20  # of products of types, of each classifier; beyond it, all are dropped

TUNING_WORDS = 50_000  # of the validation part, to which calibrations are fitted
CALIBRATIONS = "calibrations"  # their name where they are stored
CHARACTERS = "characters"  # and that of the known ones

Tree = tuple[list[int], list[str]]
Answer = TypeVar("Answer")
BEAM = "validated_with_beam"  # of what a header tells of the data, where it is not 1


class _Answers(Iterator[Answer]):
    """Answers about sentences, one by one, of a decoder that knows their types by number.

    While they are open, the numbers have to stay: see `Parser.limit_types`.

    Args:
        answers: what is given.
        num: how many there are.
        open_: where it stands until the last one was given, or nobody asks for more.
    """

    def __init__(self, answers: Iterator[Answer], num: int, open_: WeakSet[_Answers[Any]]) -> None:
        self._answers, self._num_left, self._open = answers, num, open_
        if num:
            open_.add(self)

    def __next__(self) -> Answer:
        answer = next(self._answers)
        self._num_left -= 1
        if not self._num_left:
            self._open.discard(self)
        return answer


class Parser(TreebankModel[ParserConfig], ParsesInputs, DetailedParser):
    """A trained parser; its weights are those of the network of its family.

    In its settings, nothing is left to be chosen. Its types are those met so far.

    Attributes:
        deprels: the labels of its trees, lifted arcs put back or not; the first ones are those of
            `labels.names`.
        calibrations: what makes probabilities of arcs say how often these are right, by beam; none
            where none were fitted.
    """

    kind = KIND
    config_class = ParserConfig
    works = "parse"

    def __init__(
        self,
        config: ParserConfig,
        types: Types,
        labels: Labels,
        weights: Mapping[str, Floats],
    ) -> None:
        super().__init__(config, weights)
        self.types, self.labels = types, labels
        self.calibrations: dict[int, Calibration] = {}
        self.decoder = make_decoder(config, labels, weights)
        self._open: WeakSet[_Answers[Any]] = WeakSet()
        self._names = np.asarray((*labels.names, ""), object)
        self._lifted = np.asarray([LIFTED in label for label in (*labels.names, "")])
        own = [label.partition(LIFTED)[0] for label in labels.names]
        # what lifted arcs get when they are put back may be no label of the parser
        self.deprels = tuple(dict.fromkeys([*labels.names, *own]))
        ids = {deprel: number for number, deprel in enumerate(self.deprels)}
        self._own_ids = np.asarray([*(ids[deprel] for deprel in own), -1], np.int32)

    @property
    def vocabulary(self) -> Vocabulary:
        """What it knows beside its weights."""
        lexical, tags = self.types.lexical, self.types.tags
        shares = self.types.empty_shares
        empty = {} if shares is None else {"empty_shares": list(shares)}
        found = calibration.to_json(self.calibrations)
        fitted: dict[str, Any] = {CALIBRATIONS: found} if found else {}
        characters = self.types.known_characters
        known = {} if characters is None else {CHARACTERS: characters}
        return Vocabulary(
            tables={
                **lexical.to_tables("lexical"),
                **tags.to_tables("tags"),
                **known,
                "arc_labels": self.labels.arcs,
                "root_labels": self.labels.roots,
            },
            extra={"columns": list(lexical.columns), **empty, **fitted},
        )

    @property
    def stored_as(self) -> type[np.floating[Any]]:
        """The precision of weights in the file; see `TreebankModel`."""
        return np.float16 if self.config.model.classifier == "linear" else np.float32

    @property
    def shared(self) -> object:
        """What all members of an ensemble must have alike: what they read, and what they build."""
        types, config = self.types, self.config
        # scores of one kind only can be averaged, so the loss is one
        reads = types.lexical, types.tags, types.known_characters
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
        if not (labels.arcs and labels.roots and all(labels.names)):
            raise ValueError("labels are missing, or empty")
        if config.model.decoder == "transition":
            if config.model.system == "auto":  # which training has replaced
                raise ValueError("the transition system is missing")
            if config.model.classifier == "linear" and not config.model.templates:
                raise ValueError("the templates of features are missing")
        characters = None
        if config.model.character_width:
            characters = Characters(vocabulary.texts(CHARACTERS))
        shares = read_shares(vocabulary, len(lexical.columns))
        types = Types(lexical, tags, shares, characters)
        shapes = weight_shapes(
            config.model,
            lexical.num_symbols,
            tags.num_symbols,
            labels,
            types.num_characters,
        )
        parser = cls(config, types, labels, read_weights(shapes))
        parser.calibrations = calibration.from_json(vocabulary.extra.get(CALIBRATIONS))
        return parser

    @staticmethod
    def card(header: Header) -> str:
        """Return the README.md: what it is, its scores, its data and its command."""
        learning = header.config["learning"]
        is_global = learning["loss"] == "global"
        num = header.data.get(BEAM, learning["global_beam"] if is_global else 1)
        beam = f" --beam {num}" if num > 1 else ""
        searched = f", with a beam of {num}" if num > 1 else ""
        tags = "predicted tags" if header.data.get(PREDICTED) else "tags"
        trained = ", globally trained" if is_global else ""
        fields = ", ".join(header.config["model"]["fields"])
        return checkpoint.compose(
            header,
            "A dependency parser",
            f"{describe(header)}{trained}; it reads {fields}.",
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
        together.calibrations = calibration.mean([one.calibrations for one in together.members])
        together.decoder = together.decoder.joined(
            [
                make_decoder(member.config, member.labels, member.weights)
                for member in together.members[1:]
            ]
        )
        return together

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the answers that are open: a copy of the parser has none."""
        return {name: value for name, value in vars(self).items() if name != "_open"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _open=WeakSet())

    def copy(self) -> Parser:
        """Return a copy with types of its own, which it forgets without the others."""
        return self._like(self.types.as_new(), self.weights)

    def _like(self, types: Types, weights: Mapping[str, Floats]) -> Parser:
        """Return a parser with other types or weights, and what was measured and fitted of this."""
        other = Parser(self.config, types, self.labels, weights)
        other.scores, other.calibrations = self.scores, self.calibrations
        other.data, other.unknown_share = self.data, self.unknown_share
        return other

    @property
    def known(self) -> Known:
        """What it knows of the words that it reads."""
        return Known.of((self.types.lexical, self.types.tags), self.unknown_share)

    @property
    def has_tagger(self) -> bool:
        """Whether it tags words itself, as a pipeline does."""
        return False

    @property
    def votes(self) -> bool:
        """Whether its trees are those of several parsers that vote."""
        return False

    @property
    def has_beam(self) -> bool:
        """Whether a beam makes a difference; not where the best tree is found without one."""
        return self.decoder.has_beam

    @property
    def is_calibrated(self) -> bool:
        """Whether probabilities of arcs say how often these are right."""
        return bool(self.calibrations)

    def tune(self, data: TrainingData) -> None:
        """Fit temperature and calibrations on the validation part; see `TreebankModel.tune`.

        The temperature comes first, as probabilities of a beam depend on it.
        """
        arrays, trees = data.dev.arrays, data.dev.trees
        self.unknown_share = self._share_of_unknown(arrays)
        # few numbers do not need more; and in chunks, as a search keeps its history for tables
        ends = np.cumsum(arrays.lengths, dtype=np.int64)
        num = max(1, int(np.searchsorted(ends, TUNING_WORDS)))
        cuts = np.flatnonzero(np.diff(ends[:num] // CHUNK_WORDS)) + 1
        parts = [
            GoldTrees(arrays.part(places), [trees[place] for place in places])
            for places in np.split(np.arange(min(num, len(ends))), cuts)
        ]
        if temperature.fits(self.config):
            self._set_temperature(temperature.fit(self._num_right(parts)))
        beams = {*calibration.BEAMS}
        if self.config.learning.loss == "global":  # the beam that it is to be used with
            beams.add(self.config.learning.global_beam)
        for beam in sorted(beams):
            tables: list[tuple[Floats, Bools]] = []
            for part in parts:
                gold = [heads for heads, _ in part.trees]
                tables += calibration.judged(self.arc_tables(part.arrays, beam=beam), gold)
            self.calibrations[beam] = calibration.fit(
                *map(np.concatenate, zip(*tables, strict=True))
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
        assert isinstance(self.decoder, TransitionDecoder)
        sums = [0] * len(temperature.TRIED)
        with at_work():
            self.prepare()
            for part in parts:
                found = self.decoder.decoded(part.arrays, temperature.TRIED, beam=temperature.BEAM)
                for place, decoded in enumerate(found):
                    sums[place] += part.num_right(self._named(part.arrays, *decoded))[1]
        return sums

    def _set_temperature(self, value: float) -> None:
        """Make it that of the decoder and, so that it is saved, of the settings."""
        assert isinstance(self.decoder, TransitionDecoder)
        learning = dataclasses.replace(self.config.learning, beam_temperature=value)
        self.config = dataclasses.replace(self.config, learning=learning)
        self.decoder = self.decoder.at(value)

    def encode(self, sentences: Iterable[Sentence]) -> TokenArrays:
        """Return sentences as token arrays; earlier types are forgotten if there are too many."""
        self.limit_types()
        return encode(sentences, self.types)

    def limit_types(self) -> None:
        """Forget all types if too many were met, and no answer is open that is made by them."""
        if self.decoder.num_bytes > TABLE_BYTES and not self._open:
            self.types.clear()
            self.decoder.clear()

    def prepare(self) -> None:
        """Make ready for the types that were met since the last time."""
        self.decoder.prepare(self.types)

    @property
    def longest(self) -> int | None:
        """Words of the longest sentence that gets its best tree; None if there is no such limit."""
        return self.decoder.longest

    @property
    def num_layers(self) -> int:
        """How many layers the encoder has; 0 without one."""
        return self.decoder.num_layers

    def sentence_states(
        self,
        sentences: Sequence[Sentence],
        layer: int | None = None,
        *,
        allow_missing: bool = False,
    ) -> list[Floats]:
        """Return the encoder's states of the words of sentences, [words, 2H] each.

        There is an encoder. Of an ensemble, they are those of its first member.

        Args:
            sentences: one or more, which are not changed.
            layer: of the encoder, from 1; the last one when not given.
            allow_missing: read also sentences without columns that the parser reads.

        Raises:
            DataError: there are such sentences, and they are not allowed.
        """
        with at_work():
            arrays = self.encode(sentences)
            if not allow_missing:
                refuse_lacking(sentences, arrays, ColumnCheck(self.types), is_all=False)
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

    def ranked(self, arrays: TokenArrays, num: int, *, beam: int = 1) -> Iterator[list[ScoredTree]]:
        """Give the `num` best trees of each encoded sentence, the best first, and their scores.

        They differ from each other, and there may be fewer; see `Decoder.ranked`. The first one is
        that of `trees` where `num` is 1; beyond that, a search that looks further may have found a
        better one.

        Args:
            arrays: sentences.
            num: of trees.
            beam: hypotheses per sentence; no fewer than `num` are followed.

        Raises:
            ConfigError: fewer than one tree, or a beam of no hypotheses.
        """
        check_search(beam, num)
        # open until its own last answer: a sentence may be asked about again
        return _Answers(self._ranked(arrays, num, beam), len(arrays.lengths), self._open)

    def _ranked(self, arrays: TokenArrays, num: int, beam: int) -> Iterator[list[ScoredTree]]:
        for place, ranked in enumerate(self._ranked_by_decoder(arrays, num, beam)):
            trees, asked = self._different(ranked), num
            # trees that differ in their lifted arcs alone become one when these are put back
            while len(trees) < num and len(ranked) == asked:
                asked *= 2
                sentence = arrays.part(np.asarray([place]))
                (ranked,) = self._ranked_by_decoder(sentence, asked, beam)
                trees = self._different(ranked)
            yield trees[:num]

    def _ranked_by_decoder(
        self, arrays: TokenArrays, num: int, beam: int
    ) -> Iterator[Sequence[RankedTree]]:
        return self._each(arrays, lambda decoder: decoder.ranked(arrays, num, beam=beam))

    def _different(self, ranked: Sequence[RankedTree]) -> list[ScoredTree]:
        """Return trees that differ when lifted arcs are put back, the best first."""
        trees: dict[tuple[tuple[int, ...], tuple[str, ...]], ScoredTree] = {}
        for heads, label_ids, score in ranked:
            tree = heads.tolist(), self._names[label_ids].tolist()
            if self._lifted[label_ids].any():
                tree = deprojectivise(*tree)
            trees.setdefault((tuple(tree[0]), tuple(tree[1])), ScoredTree(*tree, score))
        return list(trees.values())

    def arc_tables(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[ArcTable]:
        """Give what is thought of the arcs of each encoded sentence, lifted arcs put back.

        Where an arc of the sentence's tree is put back, it changes places with the one that it
        becomes.

        Args:
            arrays: sentences.
            beam: hypotheses per sentence.

        Returns:
            Of each sentence a table whose label ids are places in `deprels`.

        Raises:
            ConfigError: a beam of no hypotheses.
        """
        check_search(beam)
        found = self._each(arrays, lambda decoder: decoder.arc_tables(arrays, beam=beam))
        return map(self._put_back, found)

    def _put_back(self, found: ArcTable) -> ArcTable:
        """Return a table by the parser's own labels, lifted arcs of the tree put back."""
        probabilities, label_ids, heads = found
        of_tree = label_ids[np.arange(len(heads)), heads]
        label_ids = self._own_ids[label_ids]
        if self._lifted[of_tree].any():
            tree = heads.tolist(), self._names[of_tree].tolist()
            new_heads = np.asarray(deprojectivise(*tree)[0], np.int32)
            moved = np.flatnonzero(new_heads != heads)
            old, new = (moved, heads[moved]), (moved, new_heads[moved])
            for table in (probabilities, label_ids):
                table[old], table[new] = table[new], table[old]
            heads = new_heads
        return ArcTable(probabilities, label_ids, heads)

    def head_probabilities(
        self, sentences: Sequence[Sentence], *, beam: int = 1
    ) -> Iterator[Floats]:
        """Give of each sentence how probable each head is, [n, 1 + n]: see `ArcTable`.

        Sentences without columns that the parser reads are read, too.
        """
        with AT_WORK:
            tables = self.arc_tables(self.encode(sentences), beam=beam)
        for table in tables:
            yield table.probabilities

    def calibrated(self, probabilities: Floats, *, beam: int = 1) -> Doubles | Floats:
        """Return probabilities of arcs so that they say how often these are right, if known."""
        fitted = calibration.nearest(self.calibrations, beam)
        return probabilities if fitted is None else fitted(probabilities)

    def derivations(self, arrays: TokenArrays, *, beam: int = 1) -> Iterator[Derivation]:
        """Give how the tree of each encoded sentence is built; see `Decoder.derivations`.

        Raises:
            ModelError: when iterated: no tree is built step by step.
            ConfigError: a beam of no hypotheses.
        """
        check_search(beam)
        return self._each(arrays, lambda decoder: decoder.derivations(arrays, beam=beam))

    def _each(
        self, arrays: TokenArrays, ask: Callable[[Decoder], Iterator[Answer]]
    ) -> Iterator[Answer]:
        """Return what the decoder says of each sentence, on one thread as `heads_and_labels`.

        Several sentences are asked for at a time: to limit threads takes as long as a short one.
        Until the last answer, types are not forgotten.
        """
        return _Answers(self._asked(arrays, ask), len(arrays.lengths), self._open)

    def _asked(
        self, arrays: TokenArrays, ask: Callable[[Decoder], Iterator[Answer]]
    ) -> Iterator[Answer]:
        with at_work():
            self.decoder.prepare(self.types)
        answers = ask(self.decoder)
        groups = np.cumsum(arrays.lengths.astype(np.int64) ** 2) // GROUP_ARCS
        for num in np.unique(groups, return_counts=True)[1].tolist():
            # not between two groups: what is done there is the caller's
            with at_work():
                found = list(islice(answers, num))
            yield from found

    def with_lifted_arcs(self, arrays: TokenArrays, label_ids: Ints) -> list[int]:
        """Return the places of the sentences in which an arc is to be put back, in order."""
        marked = np.flatnonzero(self._lifted[label_ids])
        places = np.unique(np.searchsorted(arrays.tokens, marked, side="right") - 1)
        return list(places.tolist())

    def parse(
        self,
        sentences: Sequence[Sentence],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> None:
        """Give every sentence a tree; arguments and errors are those of `parse_stream`."""
        sentences = [refuse_no_sentence(item) for item in sentences]
        check = None if allow_missing else ColumnCheck(self.types)
        with AT_WORK:
            self._parse(sentences, beam, check, is_all=True, scores=scores)

    def _parse(
        self,
        sentences: Sequence[Sentence],
        beam: int,
        check: ColumnCheck | None,
        *,
        is_all: bool,
        scores: bool,
    ) -> None:
        arrays = self.encode(sentences)
        if check is not None:
            refuse_lacking(sentences, arrays, check, is_all=is_all)
        if scores:
            names = np.asarray(self.deprels, object)
            for sentence, table in zip(sentences, self.arc_tables(arrays, beam=beam), strict=True):
                words = np.arange(len(sentence))
                deprels = names[table.label_ids[words, table.heads]].tolist()
                sentence.set_tree(table.heads.tolist(), deprels)
                of_arcs = calibration.of_heads(table, table.heads)
                # of one word there is no other tree
                is_sure = len(sentence) == 1
                likely = [1.0] if is_sure else self.calibrated(of_arcs, beam=beam).tolist()
                sentence.set_scores(likely)
            return
        numbers = list(map(str, range(1 + max(arrays.lengths.tolist(), default=0))))
        for sentence, (heads, deprels) in zip(
            sentences, self.trees(arrays, beam=beam), strict=True
        ):
            # as Sentence.set_tree, but a number becomes a text once for all sentences
            for row, head, deprel in zip(sentence.rows, heads, deprels, strict=True):
                row[HEAD] = numbers[head]
                row[DEPREL] = deprel
            sentence.drop_scores()

    def parse_stream(
        self,
        items: Iterable[Item],
        *,
        beam: int = 1,
        allow_missing: bool = False,
        scores: bool = False,
    ) -> Iterator[Item]:
        """Give the items with new trees, in order; broken sentences as they are.

        Args:
            items: what `read_conllu`, `read_items` or `read_batches` gives.
            beam: hypotheses per sentence.
            allow_missing: parse also sentences without columns that the parser reads.
            scores: write into column MISC how probable it is that each word's head is right, as
                `Score=0.987`; batches come back as their sentences.

        Raises:
            DataError: when iterated: there are such sentences, and they are not allowed.
            TypeError: when iterated: an item is something else.
        """
        if scores:
            items = sentences_of(items)
        check = None if allow_missing else ColumnCheck(self.types)
        return in_stream(items, _StreamParser(self, beam, check, scores=scores).parse)


class _StreamParser:
    """A parser, and the types of the texts that batches number."""

    def __init__(
        self, parser: Parser, beam: int, check: ColumnCheck | None, *, scores: bool
    ) -> None:
        self._parser, self._beam, self._check, self._scores = parser, beam, check, scores
        self._label_ids = {name: number for number, name in enumerate(parser.deprels)}
        self._label_texts = LabelTexts(list(parser.deprels))
        self._texts: TextTable | None = None
        self._types: Ints = np.empty(0, np.int32)  # of its texts, by number; -1: not asked for yet
        self._num_cleared = -1
        self._is_first = True

    def parse(self, items: Sequence[Item], *, is_last: bool = False) -> None:
        """Give every sentence of the next items a tree."""
        sentences = [item for item in items if isinstance(item, Sentence)]
        batches = [item for item in items if isinstance(item, SentenceBatch)]
        is_all = is_last and self._is_first and not (sentences and batches)
        self._is_first = False
        with AT_WORK:
            if sentences:
                self._parser._parse(
                    sentences, self._beam, self._check, is_all=is_all, scores=self._scores
                )
            if batches:
                self._parse_batches(batches, is_all=is_all)

    def _parse_batches(self, batches: Sequence[SentenceBatch], *, is_all: bool) -> None:
        arrays, rows = self._encode(batches)
        check = self._check
        if check is not None and (lacking := check.find(arrays, is_all=is_all)) is not None:
            every = (sentence for batch in batches for sentence in batch.to_sentences())
            sentence = next(islice(every, lacking.sentence, None))
            raise lacking.error(sentence.path, sentence.line_of(1))
        heads, label_ids = self._parser.heads_and_labels(arrays, beam=self._beam)
        names = self._label_texts.names
        for place in self._parser.with_lifted_arcs(arrays, label_ids):
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
        is_word = np.ones(1 + len(lengths) + len(word_types), np.bool_)
        is_word[0] = False
        is_word[tokens] = False
        types = np.full(len(is_word), ROOT_TYPE, np.int32)
        types[0] = NONE_TYPE
        types[is_word] = word_types
        return TokenArrays(types, tokens, lengths), np.flatnonzero(is_word).astype(np.int32)

    def _types_of(self, texts: TextTable, numbers: Ints) -> Ints:
        """Return the parser's types of words, given the numbers of their texts."""
        types = self._parser.types
        # the reader may begin a new table, and the parser forget its types, at any time
        if texts is not self._texts or self._num_cleared != types.num_cleared:
            self._texts, self._num_cleared = texts, types.num_cleared
            self._types = np.empty(0, np.int32)
        if len(self._types) < len(texts):
            new = np.full(len(texts) - len(self._types), -1, np.int32)
            self._types = np.concatenate((self._types, new))
        unknown = np.unique(numbers[self._types[numbers] < 0])
        if len(unknown):
            # as rows of ten columns, of which types read only FORM to FEATS
            columns = [["", *text.split("\t")] for text in texts.texts(unknown)]
            self._types[unknown] = types.numbers(columns)
        return self._types[numbers]


def read_shares(vocabulary: Vocabulary, num_columns: int) -> list[float] | None:
    """Return the shares of empty columns that a vocabulary holds, if any.

    Raises:
        ValueError: they are no such shares.
    """
    shares = vocabulary.extra.get("empty_shares")
    if shares is None:
        return None
    is_list = isinstance(shares, list) and len(shares) == num_columns
    if not is_list or not all(isinstance(x, int | float) and 0 <= x <= 1 for x in shares):
        raise ValueError(f"shares of empty columns are {shares}")
    return [float(share) for share in shares]


load_model = Parser.load
