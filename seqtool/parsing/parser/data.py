"""Treebanks made ready for training: symbols, labels, and gold trees in flat arrays."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqtool.core.arrays import Floats, Ints, Longs
from seqtool.core.errors import DataError
from seqtool.parsing.data import in_parts
from seqtool.parsing.encoding.features import (
    NONE_TYPE,
    ROOT_TYPE,
    SymbolTable,
    TokenArrays,
    Types,
    are_joined,
    columns_of,
)
from seqtool.parsing.encoding.vectors import WordVectors, read_vectors
from seqtool.parsing.parser.config import (
    LEXICAL_FIELDS,
    PREDICTED_TAGS,
    SMALL_SENTENCES,
    TAG_FIELDS,
    VARIANT,
    ModelConfig,
    ParserConfig,
)
from seqtool.parsing.parser.labels import Labels
from seqtool.parsing.parser.transition.transitions import SYSTEMS
from seqtool.text.characters import Characters
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.projectivity import LIFTED, is_projective, projectivise
from seqtool.treebank.sentence import (
    COLUMNS,
    DEPREL,
    FEATS,
    FORM,
    LEMMA,
    UPOS,
    XPOS,
    Sentence,
)

# share of non-projective trees from which `auto` takes the swap system, and what it takes below;
# swap against lifted arcs in short runs of one seed: LAS the same at 0.025, +7.0 at 0.07 (a small
# treebank, few steps), +1.6, +1.1 and -0.2 at 0.2, +0.7 at 0.47, -0.4 at 0.46: no clear border
SWAP_SHARE = 0.15
# the same for trees of a linear graph-based parser that need not be projective: scores of single
# arcs know little of the shape of trees. EWT (2,000 sentences to learn, share 0.03), dev LAS: 78.8
# of projective trees, 77.2 of all; no share between these two was measured
SPANNING_SHARE = 0.15
PROJECTIVE_SYSTEM = "arc-standard"
# labels of lifted arcs that are rarer, as a share of all words, cost more than they bring: such
# arcs are lifted unmarked
LIFTED_SHARE = 1e-4
# of the words that teachers have parsed, how many may have labels that the treebank has not: a
# teacher may have been trained on sentences that are held out here
STRANGE_SHARE = 0.001
MOSTLY = 0.5  # a column that a smaller share of the treebank's words is without has to be there
# so many words of the text that teachers have parsed count like one of the treebank where symbols
# are chosen; else a parser would grow with the text, by words that it meets too rarely to learn
TAUGHT_WORDS = 4

Tree = tuple[list[int], list[str]]
Places = npt.NDArray[np.intp]  # of sentences


@dataclass(frozen=True)
class GoldTrees:
    """Encoded sentences with their gold trees.

    Attributes:
        arrays: the sentences.
        trees: heads and labels of each sentence, as the treebank has them.
    """

    arrays: TokenArrays
    trees: list[Tree]

    def token_arrays(self, trees: Sequence[Tree], labels: Labels) -> tuple[Ints, Ints]:
        """Return the heads and label ids of trees of these sentences as token arrays."""
        heads = np.full(len(self.arrays.types), -1, np.int32)
        label_ids = np.full(len(self.arrays.types), -1, np.int32)
        for begin, (tree_heads, deprels) in zip(self.arrays.tokens.tolist(), trees, strict=True):
            words = slice(begin + 1, begin + 1 + len(tree_heads))
            heads[words] = tree_heads
            label_ids[words] = labels.ids(tree_heads, deprels)
        return heads, label_ids

    def scores(self, trees: Iterable[Tree]) -> dict[str, float]:
        """Return `dev_uas` and `dev_las` of trees of these sentences, in percent.

        They are UAS and LAS as the CoNLL 2018 scorer gives them: a subtype does not count.
        """
        num_words = int(self.arrays.lengths.sum())
        num_heads, num_both = self.num_right(trees)
        return {"dev_uas": 100.0 * num_heads / num_words, "dev_las": 100.0 * num_both / num_words}

    def num_right(self, trees: Iterable[Tree]) -> tuple[int, int]:
        """Return of how many words the head is right, and of how many the label, too."""
        num_heads = num_both = 0
        for found, wanted_tree in zip(trees, self.trees, strict=True):
            for head, deprel, gold, wanted in zip(*found, *wanted_tree, strict=True):
                if head == gold:
                    num_heads += 1
                    num_both += deprel.partition(":")[0] == wanted.partition(":")[0]
        return num_heads, num_both


class Teacher(NamedTuple):
    """A parser that tells the probabilities of transitions to one that is trained: its student.

    Attributes:
        config: what the classifier is.
        weights: of the classifier, by their names in `task.ParserNetwork`; labels and
            transitions have the student's numbers.
        symbols: of the student's types, the teacher's symbols, as `Types.arrays` gives them.
    """

    config: ModelConfig
    weights: Mapping[str, Floats]
    symbols: tuple[Ints, ...]


class HeadShares(NamedTuple):
    """How probable teachers take the heads of words to be, those that are likely at all.

    Attributes:
        begins: int64 [rows + 1], of each row of a token array, where its heads begin; the rows of
            NONE, of ROOT, and of sentences too long to learn from have none.
        heads: int16, places in the sentence, 0 for ROOT.
        shares: float16, their probabilities, which sum to 1 for each word that has some.
    """

    begins: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int16]
    shares: npt.NDArray[np.float16]

    def of(self, rows: Longs) -> tuple[Longs, Longs, Floats]:
        """Return the heads of some rows: which of the rows it is, their places, their shares."""
        begins = self.begins[rows]
        counts = self.begins[rows + 1] - begins
        which = np.repeat(np.arange(len(rows)), counts)
        places = np.arange(len(which)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        return which, self.heads[places].astype(np.int64), self.shares[places].astype(np.float32)


@dataclass(frozen=True)
class TrainingData:
    """What a parser is trained on.

    Attributes:
        config: the settings, with the system chosen.
        types: those of `train` and `dev`.
        labels: of arcs; those of lifted ones too.
        train: the treebank, and behind it what teachers have parsed.
        dev: its validation part.
        heads, label_ids: the trees of `train` as the parser can build them, as token arrays.
        symbol_counts: of the lexical fields and of the tag fields, see `SymbolTable.counted`.
        vectors: what forms begin with, if given.
        gold_tags: numbers of the gold tags of words whose columns have predicted ones, if given, as
            a token array; -1 in the rows of NONE and ROOT.
        summary: numbers that tell these data from others, for people and for `--resume`.
        skipped: what is wrong with each sentence that was left out.
        num_taught: how many sentences of `train`, the last ones, teachers have parsed.
        teachers: those that tell the probabilities of transitions, if there are such.
        head_shares: what teachers take the heads to be, of a student that scores arcs, if given.
        initial: the directory of the parser that training begins from, if given.
    """

    config: ParserConfig
    types: Types
    labels: Labels
    train: GoldTrees
    dev: GoldTrees
    heads: Ints
    label_ids: Ints
    symbol_counts: tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
    vectors: WordVectors | None = None
    gold_tags: Ints | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    skipped: list[DataError] = field(default_factory=list)
    num_taught: int = 0
    teachers: tuple[Teacher, ...] = ()
    head_shares: HeadShares | None = None
    initial: str | None = None

    def of_epoch(self, epoch: int, usable: Places) -> Places:
        """Return the places of the sentences of `train` that are learnt in an epoch.

        They are those of the treebank, and as many words of the others as `learning.taught_words`
        says: the next ones in a random order, which begins anew when all had their turn.

        Args:
            epoch: from 0.
            usable: places to choose from, ascending.
        """
        lengths = self.train.arrays.lengths
        first = len(lengths) - self.num_taught
        own, taught = usable[usable < first], usable[usable >= first]
        num_words = int(lengths[taught].sum())
        wanted = int(self.config.learning.taught_words * int(lengths[own].sum()))
        if num_words <= wanted:
            return usable
        parts = [own]
        rounds, begin = divmod(epoch * wanted, num_words)
        while wanted > 0:
            generator = np.random.default_rng((self.config.training.seed, rounds, 0, 1))
            order = generator.permutation(taught)
            ends = np.cumsum(lengths[order])
            parts.append(order[(ends > begin) & (ends <= begin + wanted)])
            rounds, begin, wanted = rounds + 1, 0, begin + wanted - num_words
        return np.unique(np.concatenate(parts))

    @property
    def about(self) -> dict[str, Any]:
        """The summary, and whether the tags are predicted, as the scores are by such then."""
        return {**self.summary, **({} if self.gold_tags is None else {PREDICTED_TAGS: True})}

    @property
    def num_gold_tags(self) -> int:
        """The number of combinations of gold tags."""
        return 0 if self.gold_tags is None else 1 + int(self.gold_tags.max())


class _Reader:
    """Reads sentences into lists of numbers, so that none is kept."""

    def __init__(self, columns: tuple[int, ...]) -> None:
        self.columns = columns
        self.counts: Counter[tuple[str, ...]] = Counter()
        # in the order in which they are met, as `features.Types` numbers them, which cannot be made
        # before all symbols are known
        self.ids: dict[tuple[str, ...], int] = {}
        self.digest = hashlib.sha256()

    def empty_shares(self) -> list[float]:
        """Return the share of the words counted that have `_`, of each column."""
        num = max(1, self.counts.total())
        return [
            sum(count for key, count in self.counts.items() if key[place] == "_") / num
            for place in range(len(self.columns))
        ]

    def read(
        self, sentence: Sentence, into: _Part, *, count: bool, gold: Sentence | None = None
    ) -> None:
        """Add a sentence, whose types are to be learnt if they count; `gold` has its gold tags."""
        keys = [tuple([row[column] for column in self.columns]) for row in sentence.rows]
        if count:
            self.counts.update(keys)
        into.tokens.append(len(into.types))
        into.types.append(ROOT_TYPE)
        first = ROOT_TYPE + 1
        into.types += [self.ids.setdefault(key, first + len(self.ids)) for key in keys]
        into.trees.append((sentence.heads(), sentence.column(DEPREL)))
        tags = [""] * len(keys)
        if gold is not None:
            # in this form they are sorted and numbered as ever, so that a seed gives the same
            # weights
            tags = ["~".join(row[UPOS : FEATS + 1]).replace("|", "+") for row in gold.rows]
        into.gold_tags += ["", *tags]
        content = (keys, into.trees[-1]) if gold is None else (keys, into.trees[-1], tags)
        self.digest.update(repr(content).encode())


@dataclass
class _Part:
    """The sentences of a part of a treebank while it is read."""

    types: list[int] = field(default_factory=lambda: [NONE_TYPE])
    tokens: list[int] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    gold_tags: list[str] = field(default_factory=lambda: [""])

    def gold(self) -> GoldTrees:
        """Return what was read, as arrays."""
        arrays = TokenArrays(
            np.asarray(self.types, np.int32),
            np.asarray(self.tokens, np.int32),
            np.asarray([len(heads) for heads, _ in self.trees], np.int32),
        )
        return GoldTrees(arrays, [*self.trees])  # what is read later is no part of it

    def gold_tag_ids(self) -> Ints | None:
        """Return the numbers of gold tags, a token array, -1 where there are none; None without."""
        ids = {tags: number for number, tags in enumerate(sorted({*self.gold_tags} - {""}))}
        return np.asarray([ids.get(tags, -1) for tags in self.gold_tags], np.int32) if ids else None


def prepare_data(
    train_files: Sequence[str],
    dev_file: str | None,
    config: ParserConfig,
    *,
    skip_invalid: bool = False,
    embeddings: str | None = None,
    gold_tags: str | None = None,
    taught: str | None = None,
) -> TrainingData:
    """Read a treebank and make ready what a parser is trained on.

    What the settings leave open is chosen by the treebank: the system, where it is `auto`, by the
    share of its non-projective trees, as are the trees that a graph-based parser finds; whether
    characters are read, by its morphemes; and of a small treebank, the epochs (`small_epochs`).

    The files are those of a `TreebankRecord`; `taught` has sentences that teachers have parsed.

    Raises:
        DataError: a broken sentence, no trees, or too few; gold tags of other sentences; columns
            that this parser reads, and a text of `taught` lacks.
        ConfigError: word vectors without the field that they are for.
    """
    fields = config.model.fields
    reader = _Reader(columns_of(fields))
    train, dev = _Part(), _Part()
    skipped: list[DataError] = []
    sentences = read_conllu(train_files, skip_invalid=skip_invalid, on_skipped=skipped.append)
    valid = None
    if dev_file is not None:
        validation = read_conllu(dev_file, skip_invalid=skip_invalid, on_skipped=skipped.append)
        valid = ((sentence, None) for sentence in validation)
    for (sentence, gold_sentence), is_dev in in_parts(_with_gold(sentences, gold_tags), valid):
        reader.read(sentence, dev if is_dev else train, count=not is_dev, gold=gold_sentence)
    if not dev.trees:  # nothing is held out of so small a treebank
        dev = train
    gold_dev = dev.gold()
    num_gold, empty_shares = len(train.trees), reader.empty_shares()
    counts: Mapping[tuple[str, ...], float] = reader.counts
    num_variants = 0  # the last ones of what was taught
    if taught is not None:
        counts, num_variants = _read_taught(reader, taught, train)
    gold = train.gold()
    if not (gold.arrays.lengths > 1).any():
        raise DataError(
            "no sentence has more than one word, so there is nothing to learn",
            hint="give a larger treebank",
            path=train_files[0],
        )
    config = _with_characters(config, reader.columns, counts)
    vectors = read_vectors(embeddings, fields, config.model.lexical_size) if embeddings else None
    types = _types(reader, config, counts, empty_shares, vectors)
    _refuse_lacking(types, gold.arrays, num_gold, num_variants)
    _refuse_other_labels(gold.trees[:num_gold], gold.trees[num_gold:])
    non_projective = [not is_projective(heads) for heads, _ in gold.trees]
    num_non_projective = sum(non_projective[:num_gold])
    share = num_non_projective / num_gold
    config = _decided(config, share, num_gold)
    trees = _buildable(gold.trees, config, sum(non_projective))
    labels = Labels.of(trees)
    heads, label_ids = gold.token_arrays(trees, labels)
    symbol_counts = (
        types.lexical.counted(reader.counts.items()),
        types.tags.counted(reader.counts.items()),
    )
    summary = {
        "sentences": num_gold,
        "words": int(gold.arrays.lengths[:num_gold].sum()),
        "dev_sentences": len(gold_dev.trees),
        "dev_words": int(gold_dev.arrays.lengths.sum()),
        "non_projective_sentences": num_non_projective,
        "dev_held_out": dev_file is None,
        "labels": len(labels),
        "sum": reader.digest.hexdigest()[:12],
    }
    if taught is not None:
        summary["taught_sentences"] = len(gold.trees) - num_gold
        summary |= {"variants": num_variants} if num_variants else {}
        summary["taught_words"] = int(gold.arrays.lengths[num_gold:].sum())
    return TrainingData(
        config=config,
        types=types,
        labels=labels,
        train=gold,
        dev=gold_dev,
        heads=heads,
        label_ids=label_ids,
        symbol_counts=symbol_counts,
        vectors=vectors,
        gold_tags=train.gold_tag_ids(),
        summary=summary,
        skipped=skipped,
        num_taught=len(gold.trees) - num_gold,
    )


def _read_taught(
    reader: _Reader, path: str, train: _Part
) -> tuple[dict[tuple[str, ...], float], int]:
    """Read what teachers have parsed into `train`, behind the treebank that is there.

    Returns:
        The counts of types, of which the teachers' count less; and how many of the sentences, the
        last ones, are variants of the treebank's.
    """
    own, num_variants = reader.counts.copy(), 0
    for sentence in read_conllu(path):
        num_variants += VARIANT in sentence.comments
        reader.read(sentence, train, count=True)
    counts = {
        key: own[key] + (count - own[key]) / TAUGHT_WORDS for key, count in reader.counts.items()
    }
    return counts, num_variants


def _types(
    reader: _Reader,
    config: ParserConfig,
    counts: Mapping[tuple[str, ...], float],
    empty_shares: list[float],
    vectors: WordVectors | None,
) -> Types:
    """Return the symbols of the columns that were read, and the types that have them.

    Args:
        reader: has read the treebank, and what teachers have parsed.
        config: names the fields.
        counts: of types; text of teachers counts less.
        empty_shares: of columns, how often the treebank leaves them empty.
        vectors: whose words get symbols too; None without.
    """
    lexical, tags = (
        SymbolTable.build(
            counts.items(),
            [name for name in config.model.fields if name in kind],
            config.model.min_count,
            reader.columns,
        )
        for kind in (LEXICAL_FIELDS, TAG_FIELDS)
    )
    if vectors is not None:
        lexical = vectors.add_words(lexical)
    characters = None
    if config.model.character_width:
        place = reader.columns.index(FORM)
        forms: Counter[str] = Counter()
        for key, count in reader.counts.items():
            forms[key[place]] += count
        characters = Characters.build(forms, config.model.min_count)
    types = Types(lexical, tags, empty_shares, characters)
    for key in reader.ids:
        types.add(key)
    return types


def _with_gold(
    sentences: Iterable[Sentence], path: str | None
) -> Iterator[tuple[Sentence, Sentence | None]]:
    """Yield each sentence with the same one of a file that has its gold tags, if there is one."""
    if path is None:
        yield from ((sentence, None) for sentence in sentences)
        return
    for sentence, gold in zip_longest(sentences, read_conllu(path)):
        if sentence is None or gold is None or sentence.column(FORM) != gold.column(FORM):
            raise DataError(
                "holds other sentences than those that are trained on",
                hint="give the same sentences, in the same order",
                path=path,
            )
        yield sentence, gold


def _refuse_lacking(types: Types, arrays: TokenArrays, num_gold: int, num_variants: int) -> None:
    """Refuse text of teachers, behind the treebank, without a column that most of the treebank has.

    Behind the text stand variants, which have the columns of the treebank. A word may be without: a
    tagger among the teachers has given it what it should have.

    Raises:
        DataError: no word of the text has one.
    """
    end = len(arrays.lengths) - num_variants
    if num_gold == end:
        return
    words = arrays.types[arrays.tokens[num_gold] : arrays.tokens[end] if num_variants else None]
    lacks = int(np.bitwise_and.reduce(np.frombuffer(bytes(types.empty), np.uint8)[words]))
    shares = types.empty_shares or []
    columns = [
        COLUMNS[types.lexical.columns[place]]
        for place, share in enumerate(shares)
        if lacks >> place & 1 and share < MOSTLY
    ]
    if columns:
        raise DataError(
            f"the text of --unlabelled lacks {' and '.join(columns)}, which the parser that is to "
            "be trained reads",
            hint="tag the text with `seqtool tag`, or say with --fields what is to be read",
        )


def _refuse_other_labels(gold: Sequence[Tree], taught: Sequence[Tree]) -> None:
    """Refuse trees of teachers with labels that the treebank has not.

    Raises:
        DataError: too many of their words have such.
    """
    known = {label for _, labels in gold for label in labels}
    counts = Counter(label for _, labels in taught for label in labels)
    others = [label for label, _ in counts.most_common() if label not in known]
    if sum(counts[label] for label in others) > STRANGE_SHARE * counts.total():
        raise DataError(
            f"the teachers use labels that the treebank has not: {', '.join(others[:8])}",
            hint="name teachers with --distil that were trained on this treebank",
        )


def _with_characters(
    config: ParserConfig, columns: Sequence[int], counts: Mapping[tuple[str, ...], float]
) -> ParserConfig:
    """Return settings without filters over characters where morphemes are told, if so is set."""
    fields = {LEMMA: "lemma", XPOS: "xpos"}
    read = [column for column, name in fields.items() if name in config.model.fields]
    model = config.model
    if not model.joined_characters and any(
        are_joined(counts.items(), columns.index(column)) for column in read
    ):
        model = replace(model, num_filters=0)
    return replace(config, model=replace(model, joined_characters=True))


def _decided(config: ParserConfig, share: float, num_sentences: int) -> ParserConfig:
    """Return settings with the system, the trees and the epochs chosen by the treebank.

    Args:
        config: the settings.
        share: of trees that are not projective.
        num_sentences: of the training part.
    """
    model, learning, training = config.model, config.learning, config.training
    if model.decoder == "transition" and model.system == "auto":
        model = replace(model, system="swap" if share >= SWAP_SHARE else "arc-standard")
    if model.decoder == "graph" and model.trees == "auto":
        if model.classifier == "linear":
            is_projective = share < SPANNING_SHARE
        else:
            is_projective = not share or learning.loss == "crf"
        model = replace(model, trees="projective" if is_projective else "all")
    if learning.small_epochs and num_sentences < SMALL_SENTENCES:
        training = replace(training, epochs=learning.small_epochs)
    return ParserConfig(model, replace(learning, small_epochs=0), training)


def _is_projective(config: ModelConfig) -> bool:
    """Return whether no parser of such settings builds arcs that cross."""
    if config.decoder == "graph":
        return config.trees == "projective"
    return SYSTEMS[config.system].projective


def _buildable(trees: list[Tree], config: ParserConfig, num_non_projective: int) -> list[Tree]:
    """Return the trees as the parser can build them."""
    model = config.model
    crosses = (
        model.trees == "all" if model.decoder == "graph" else not SYSTEMS[model.system].projective
    )
    if not num_non_projective or crosses:
        return trees
    lifted = [projectivise(*tree) for tree in trees]
    counts = Counter(label for _, labels in lifted for label in labels)
    least = LIFTED_SHARE * counts.total() if config.learning.mark_lifted else np.inf
    plain = {
        label: label if LIFTED not in label or count >= least else label.partition(LIFTED)[0]
        for label, count in counts.items()
    }
    return [(heads, [plain[label] for label in labels]) for heads, labels in lifted]
