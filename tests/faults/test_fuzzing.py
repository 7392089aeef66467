"""Mutated files of every format: an answer or two lines, never another exception.

Each function reads hostile bytes and checks what comes of them. A `SeqtoolError` is an answer.
Where another program reads the same format, both must read the same.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import zstandard
from faults.attacks import damage
from faults.models import KEPT
from faults.runs import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from seqtool.core import checkpoint
from seqtool.core.arrays import Ids
from seqtool.core.errors import SeqtoolError
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import EOS_ID, UNK_ID

FOUND = Path(__file__).parent / "found"  # files that were faults once: TARGET-what-it-was
_FOLDER = tempfile.TemporaryDirectory(prefix="seqtool-fuzz-")
_HERE = Path(_FOLDER.name)


def written(name: str, content: bytes) -> Path:
    """Return a file of this content; the same one is written anew each time."""
    path = _HERE / name
    path.write_bytes(content)
    return path


def arpa(content: bytes) -> None:
    """A table that is read has its rows in their places, and what is queried is a number."""
    from seqtool.lm.ngram.arpa import is_arpa, read_arpa
    from seqtool.lm.ngram.model import NgramModel
    from seqtool.lm.ngram.table import BackoffTable
    from seqtool.text.tokenizers import WordTokenizer

    path = written("x.arpa", content)
    with contextlib.suppress(SeqtoolError):
        if not is_arpa(path):
            return
        table, vocabulary = read_arpa(path)
        assert len(vocabulary) >= 2
        BackoffTable.from_arrays(table.arrays(), table.vocabulary_size)
        model = NgramModel(table, WordTokenizer(vocabulary))
        ids = np.array([*range(2, min(20, len(vocabulary))), UNK_ID, EOS_ID], np.int32)
        (scores,) = model.score_ids([ids])
        assert not np.isnan(scores.log_probs).any()
        if not set(content) & set(b"\0\v\f"):  # KenLM ends a word there
            _compare_with_kenlm(path, vocabulary.symbols, ids, scores.log_probs)


def _compare_with_kenlm(
    path: Path, symbols: Sequence[str], ids: Ids, log_probs: npt.NDArray[np.float64]
) -> None:
    """Check the scores of the first sentence against KenLM's, where it takes the file, too."""
    try:
        import kenlm
    except ImportError:  # a judge that is not installed everywhere
        return
    config = kenlm.Config()
    config.show_progress = False
    try:
        theirs = kenlm.Model(str(path), config)
    except (OSError, RuntimeError):  # it wants both sentence marks, and no blank too many
        return
    end = int(np.argmax(ids == EOS_ID)) + 1
    words = " ".join(symbols[token] for token in ids[: end - 1])
    expected = [log10 * LN_10 for log10, _, _ in theirs.full_scores(words)]
    np.testing.assert_allclose(log_probs[:end], expected, rtol=1e-5, atol=1e-5)


def conllu(content: bytes) -> None:
    """The compiled road and the general one give the same sentences and the same errors."""
    from seqtool.treebank.conllu import read_batches, read_items, sentences_of

    path = written("x.conllu", content)

    def outcome(items: object) -> list[str]:
        texts = []
        try:
            for item in items:  # type: ignore[attr-defined]
                texts.append(item.to_conllu())
        except SeqtoolError as error:
            texts.append(str(error))
        return texts

    fast = outcome(sentences_of(read_batches(path, skip_invalid=True)))
    general = outcome(sentences_of(read_items(path, check="columns")))
    assert fast == general, (fast, general)


def conllu_trees(content: bytes) -> None:
    """A tree that is read is written, and read again, as the same; the package conllu reads it."""
    from conllu import parse
    from conllu.exceptions import ParseException

    from seqtool.treebank.conllu import read_conllu
    from seqtool.treebank.sentence import FORM

    path = written("x.conllu", content)
    try:
        sentences = list(read_conllu(path))
    except SeqtoolError:
        return
    text = "".join(sentence.to_conllu() for sentence in sentences)
    again = list(read_conllu(written("y.conllu", text.encode())))
    assert [sentence.to_conllu() for sentence in again] == [s.to_conllu() for s in sentences]
    if text.isascii():
        with contextlib.suppress(ParseException):
            read = parse(text)
            words = [[w["form"] for w in tokens if isinstance(w["id"], int)] for tokens in read]
            assert words == [sentence.column(FORM) for sentence in sentences], text


def yaml(content: bytes) -> None:
    """Settings are read, or refused with a line."""
    from seqtool.core.config import from_dict, load_yaml
    from seqtool.lm.neural.config import NeuralLMConfig

    with contextlib.suppress(SeqtoolError):
        from_dict(NeuralLMConfig, load_yaml(written("x.yaml", content)))


def override(content: bytes) -> None:
    """A value after --set is one, or is refused."""
    from seqtool.core.config import apply_overrides, from_dict
    from seqtool.lm.neural.config import NeuralLMConfig

    with contextlib.suppress(SeqtoolError):
        values: dict[str, object] = {}
        text = content.decode("utf-8", "surrogateescape")
        apply_overrides(NeuralLMConfig, values, [f"hidden_size={text}"])
        from_dict(NeuralLMConfig, values)


def header(content: bytes) -> None:
    """The header of a model is read, or the model is damaged."""
    path = written("model.json", content)
    with contextlib.suppress(SeqtoolError):
        found = checkpoint.read_header(path.parent)
        checkpoint.verify(path.parent, found)


def vocabulary(content: bytes) -> None:
    """A vocabulary is read, and every symbol found under its number."""
    from seqtool.core.vocabulary import Vocabulary

    with contextlib.suppress(SeqtoolError):
        read = Vocabulary.load(written("vocabulary.json", content))
        for number, symbol in enumerate(read.symbols):
            assert read.id(symbol) == number


def corpus(content: bytes) -> None:
    """What a corpus says of itself is true, or it is damaged."""
    from seqtool.text.prepared import PreparedCorpus

    for name in ("train.bin", "valid.bin", "vocabulary.json"):
        if not (_HERE / name).exists():
            written(name, (KEPT / "corpus" / name).read_bytes())
    path = written("corpus.json", content)
    with contextlib.suppress(SeqtoolError):
        opened = PreparedCorpus.open(path.parent)
        for split in opened.splits():
            assert opened.ids(split).max(initial=0) < len(opened.vocabulary)
    path.unlink()


def run(content: bytes) -> None:
    """The record of a run is read, or is damaged."""
    from seqtool.lm.neural.config import NeuralLMConfig
    from seqtool.training.run import read_settings

    with contextlib.suppress(SeqtoolError):
        read_settings(written("run.json", content).parent, NeuralLMConfig)


def jsonl(content: bytes) -> None:
    """Texts are those that Python's own reader of JSON finds."""
    from seqtool.core.reading import read_blocks

    path = written("x.jsonl", content)
    try:
        text = b"".join(read_blocks(path))
    except SeqtoolError:
        return
    expected = ""
    for line in content.decode().removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
        if line.strip(" \t\r\x0b\x0c"):
            # Python's reader of bytes leaves such a mark out before any line
            found = json.loads(line.removeprefix("\ufeff"))["text"].replace("\r\n", "\n")
            expected += found if found.endswith("\n") else found + "\n"
    assert text.decode() == expected


def pairs(content: bytes) -> None:
    """Pairs of sentences that differ, in a region that each of them has."""
    from seqtool.lm.pairs import read_pairs, regions

    for name in ("x.tsv", "x.csv", "x.jsonl"):
        with contextlib.suppress(SeqtoolError):
            for pair in read_pairs(written(name, content)):
                good, bad = (text.split() for text in (pair.good, pair.bad))
                assert good
                assert bad
                assert pair.line
                for words, region in zip((good, bad), regions(good, bad), strict=True):
                    assert 0 <= region.start < region.stop <= len(words) + 1


def packed(content: bytes) -> None:
    """Packed text is read, or damaged."""
    from seqtool.core.reading import read_blocks

    for name in ("x.txt", "x.txt.gz", "x.txt.zst"):
        with contextlib.suppress(SeqtoolError):
            for block in read_blocks(written(name, content)):
                assert block.endswith(b"\n")
                block.decode()


def sentencepiece(content: bytes) -> None:
    """A model of SentencePiece is one, or damaged."""
    from seqtool.core.storage import read_object
    from seqtool.text.tokenizers import load_tokenizer

    info = read_object(KEPT / "corpus-bpe" / "corpus.json")
    path = written("tokenizer.model", content)
    with contextlib.suppress(SeqtoolError):
        tokenizer = load_tokenizer(path.parent, info)
        assert tokenizer.vocabulary.symbols


def kept(*names: str) -> list[bytes]:
    return [(KEPT / name).read_bytes() for name in names]


def _trees() -> list[bytes]:
    text = (KEPT / "dev.conllu").read_text("utf-8")
    return [f"{sentence}\n\n".encode() for sentence in text.strip().split("\n\n")[:3]]


_TEXT = b"the old man\nthe sea\n" * 3
# what reads, and honest content
TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "arpa": (arpa, [(ROOT / "tests" / "lm" / "ngram" / "golden" / "kenlm.arpa").read_bytes()]),
    "conllu": (conllu, _trees()),
    "conllu-trees": (conllu_trees, _trees()),
    "yaml": (
        yaml,
        [
            (ROOT / "seqtool" / "recipes" / "ptb-lstm-cpu.yaml").read_bytes(),
            b"a: &a [x]\nb: *a\n",
            b"model: {hidden_size: 0x1F, dropout: 1e-3, cell: 2001-01-01}\n",
        ],
    ),
    "override": (override, [b"3", b"[1, 2]", b"2001-12-14t21:59:43.10-05:00", b"0b1"]),
    "header": (header, kept("lm-rnn/model.json", "parser/model.json", "mixture/model.json")),
    "vocabulary": (vocabulary, kept("lm-rnn/vocabulary.json", "parser/vocabulary.json")),
    "corpus": (corpus, kept("corpus/corpus.json")),
    "run": (run, kept("lm-rnn/run.json")),
    "jsonl": (jsonl, [b'{"text": "the old"}\n{"text": "\\ud55c\\n"}\n']),
    "pairs": (
        pairs,
        [
            b'good\tbad\tparadigm\na b\tb a\tp\n"a ""b"""\tb\tq\n',
            b'{"sentence_good": "a b", "sentence_bad": "a", "UID": "p"}\n',
        ],
    ),
    "packed": (
        packed,
        [_TEXT, gzip.compress(_TEXT, mtime=0), zstandard.ZstdCompressor().compress(_TEXT)],
    ),
    "sentencepiece": (sentencepiece, kept("corpus-bpe/tokenizer.model")),
}


def test_every_kind_of_file_is_fuzzed() -> None:
    assert set(checkpoint.FILE_LOADERS) <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_mutations(name: str) -> None:
    read, seeds = TARGETS[name]
    for seed in seeds:
        read(seed)

    @settings(max_examples=150)
    @given(st.integers(0, 2**32), st.integers(1, 4))
    def mutate(number: int, times: int) -> None:
        chosen = random.Random(number)
        content = chosen.choice(seeds)
        for _ in range(times):
            content = damage(content, chosen)
        read(content)

    mutate()


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_was_found_once(path: Path) -> None:
    name = max((name for name in TARGETS if path.name.startswith(name)), key=len)
    TARGETS[name][0](path.read_bytes())
