"""What is fuzzed: each function reads hostile bytes and checks what comes of them.

A `SeqtoolError` is an answer; any other exception is a fault. Where another program reads the same
format, both must read the same.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from faults.runs import ROOT

from seqtool.core.arrays import Ids
from seqtool.core.errors import SeqtoolError
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import EOS_ID, UNK_ID

KEPT = ROOT / "tests" / "kept"
FOLDER = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
_HERE = FOLDER / f"seqtool-fuzz-{os.getpid()}"
atexit.register(shutil.rmtree, _HERE, ignore_errors=True)


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        read: reads bytes, and raises what is a fault.
        seeds: honest content.
    """

    read: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def written(name: str, content: bytes) -> Path:
    """Return a file of this content; the same one is written anew each time."""
    _HERE.mkdir(exist_ok=True)
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
    from seqtool.core import checkpoint

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
                    assert 0 <= region.begin < region.end <= len(words) + 1


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


def _of(*names: str) -> Callable[[], list[bytes]]:
    return lambda: [(KEPT / name).read_bytes() for name in names]


def _arpa_seeds() -> list[bytes]:
    return [(ROOT / "tests" / "lm" / "ngram" / "golden" / "kenlm.arpa").read_bytes()]


def _packed_seeds() -> list[bytes]:
    import gzip

    import zstandard

    text = b"the old man\nthe sea\n" * 3
    return [text, gzip.compress(text, mtime=0), zstandard.ZstdCompressor().compress(text)]


def _tree_seeds() -> list[bytes]:
    text = (KEPT / "dev.conllu").read_text("utf-8")
    return [f"{sentence}\n\n".encode() for sentence in text.strip().split("\n\n")[:3]]


TARGETS = {
    "arpa": Target(arpa, _arpa_seeds),
    "conllu": Target(conllu, _tree_seeds),
    "conllu-trees": Target(conllu_trees, _tree_seeds),
    "yaml": Target(
        yaml,
        lambda: [
            (ROOT / "seqtool" / "recipes" / "ptb-lstm-cpu.yaml").read_bytes(),
            b"a: &a [x]\nb: *a\n",
            b"model: {hidden_size: 0x1F, dropout: 1e-3, cell: 2001-01-01}\n",
        ],
    ),
    "override": Target(
        override, lambda: [b"3", b"[1, 2]", b"2001-12-14t21:59:43.10-05:00", b"0b1"]
    ),
    "header": Target(header, _of("lm-rnn/model.json", "parser/model.json", "mixture/model.json")),
    "vocabulary": Target(
        vocabulary,
        _of("lm-rnn/vocabulary.json", "parser/vocabulary.json", "segmenter/vocabulary.json"),
    ),
    "corpus": Target(corpus, _of("corpus/corpus.json")),
    "run": Target(run, _of("lm-rnn/run.json")),
    "jsonl": Target(jsonl, lambda: [b'{"text": "the old"}\n{"text": "\\ud55c\\n"}\n']),
    "pairs": Target(
        pairs,
        lambda: [
            b'good\tbad\tparadigm\na b\tb a\tp\n"a ""b"""\tb\tq\n',
            b'{"sentence_good": "a b", "sentence_bad": "a", "UID": "p"}\n',
        ],
    ),
    "packed": Target(packed, _packed_seeds),
    "sentencepiece": Target(sentencepiece, _of("corpus-bpe/tokenizer.model")),
}
