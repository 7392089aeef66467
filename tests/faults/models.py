"""Tiny models, corpora and stopped runs to attack, and commands that read them.

Some are kept from an earlier version; the others are trained when they are first asked for, each in
a second. Whatever the tables of the package name is among them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from faults.runs import ROOT, Commands

from seqtool.lm.neural.cells import CELLS
from seqtool.lm.neural.output import OUTPUT_LAYERS
from seqtool.parsing.parser.config import PRESETS

KEPT = ROOT / "tests" / "kept"
TEXTS = ("valid.txt", "dev.conllu", "raw.txt", "text.txt", "train.conllu")
# what others need beside them
NEEDS = {
    "mixture": ("lm-lstm", "ngram"),
    "lm-stopped": ("corpus",),
    "ngram": ("ngram",),
    "class-ngram": ("classes.tsv",),
    "classifier-lm": ("lm-lstm",),
}

_TREES = ("train.conllu", "--dev", "dev.conllu", "--epochs", "2", "--threads", "1")
_NEURAL = ("--set", "min_steps=2", "--set", "lexical_size=8")
_ENCODER = (*_NEURAL, "--set", "encoder_size=8")
_PARSER = ("train-parser", *_TREES)
_HASHED = ("--set", "hash_bits=10")
_GRAPH = (*_ENCODER, "--set", "arc_size=8", "--set", "relation_size=4")
_SMALL = {
    **dict.fromkeys(("linear", "mst"), _HASHED),
    "graph": (*_GRAPH, "--set", "second_order=both", "--set", "second_size=4"),
    "accurate": (*_ENCODER, "--hidden", "16"),
}
_TAGGER = ("train-tagger", *_TREES, *_ENCODER)
_LABELLER = ("train-tagger", "words.txt", "--column", "UPOS", "--epochs", "2", *_ENCODER)
_CLASSIFIER = ("train-classifier", "texts.tsv", "--epochs", "2", "--encoder")
LM = ("--epochs", "1", "--batch-size", "4", "--bptt", "8", "--set", "hidden_size=4")
_STOPPED = ("--max-minutes", "0")
MADE: dict[str, tuple[str, ...]] = {
    "snm": (
        *("ngram", "snm", "text.txt", "--order", "3", "--remote", "1", "--gap", "1"),
        *("--adjacent", "1", "--table-bits", "10"),
    ),
    "classes.tsv": ("ngram", "classes", "text.txt", "--num", "10"),
    "class-ngram": ("ngram", "train", "text.txt", "--order", "3", "--classes", "classes.tsv"),
    **{f"lm-{name}": ("train-lm", "text.txt", "--cell", name, *LM) for name in CELLS},
    **{
        f"lm-{name}": ("train-lm", "text.txt", *LM, "--set", f"layer={name}")
        for name in OUTPUT_LAYERS
    },
    **{
        f"parser-{name}": (*_PARSER, "--preset", name, *_SMALL.get(name, (*_NEURAL, "--hidden=16")))
        for name in PRESETS.table
    },
    "parser-crf": (*_PARSER, "--preset", "graph", "--loss", "crf", *_GRAPH),
    "parser-global": (*_PARSER, *_NEURAL, "--loss=global", "--hidden=16", "--set=global_epochs=1"),
    "tagger-sparse": _TAGGER,
    "labeller": _LABELLER,
    "segmenter-trained": ("train-parser", "--raw", "--only", "segmenter", *_TREES),
    "classifier-linear": (*_CLASSIFIER, "linear"),
    "classifier-bilstm": (*_CLASSIFIER, "bilstm", "--hidden", "4", "--set", "embedding_size=8"),
    "classifier-lm": (*_CLASSIFIER, "lm", "--lm", "lm-lstm"),
    "syntactic": ("train-lm", "--syntactic", *_TREES, "--set", "hidden_size=4"),
    "syntactic-stopped": ("train-lm", "--syntactic", *_TREES, *_STOPPED),
    "parser-stopped": (*_PARSER, "--preset", "linear", *_HASHED, *_STOPPED),
    "pipeline-stopped": (*_PARSER, "--raw", "--fast", *_STOPPED),
}

PERPLEXITY = ("eval-ppl", "valid.txt", "-m", "x")
_GENERATE = ("generate", "-m", "x", "--prompt", "the", "--max-tokens", "5")
_PARSE = ("parse", "dev.conllu", "-m", "x")
# an epoch more than there were
_RESUME = ("--resume", "-o", "x", "--epochs", "3")
USES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("corpus", ("ngram", "train", "x", "--order", "2", "-o", "out")),
    ("corpus", ("train-lm", "x", "-o", "out", *LM)),
    ("corpus", ("ngram", "counts", "x", "--order", "1")),
    ("corpus-bpe", ("ngram", "train", "x", "--order", "2", "-o", "out")),
    *(
        (model, PERPLEXITY)
        for model in (
            *(f"lm-{name}" for name in (*CELLS, *OUTPUT_LAYERS)),
            *("lm-bpe", "ngram", "class-ngram", "snm", "mixture"),
        )
    ),
    *((model, _GENERATE) for model in ("lm-rhn", "ngram", "class-ngram", "snm")),
    ("lm-lstm", (*PERPLEXITY, "--dynamic", "--dynamic-stats", "text.txt")),
    ("ngram", (*PERPLEXITY, "--cache")),
    ("ngram", ("ngram", "export", "x", "x.arpa")),
    ("ngram", ("ngram", "prune", "x", "--threshold", "1e-5", "-o", "out")),
    ("ngram", ("ngram", "mix", "x", "ngram", "--tune", "valid.txt", "-o", "out")),
    ("snm", ("surprisal", "valid.txt", "-m", "x")),
    *((name, _PARSE) for name in MADE if name.startswith("parser-") and "stopped" not in name),
    *((f"parser-{name}", (*_PARSE, "--nbest", "3")) for name in PRESETS.table),
    ("tagger", ("tag", "dev.conllu", "-m", "x")),
    ("tagger-sparse", ("tag", "dev.conllu", "-m", "x")),
    ("labeller", ("tag", "dev.conllu", "-m", "x")),
    ("segmenter", ("segment", "raw.txt", "-m", "x")),
    ("pipeline", ("parse", "raw.txt", "-m", "x")),
    *(
        (f"classifier-{name}", ("classify", "texts.tsv", "-m", "x"))
        for name in ("linear", "bilstm", "lm")
    ),
    *(
        (model, ("inspect", "x"))
        for model in ("parser-fast", "lm-gru", "ngram", "corpus", "pipeline", "mixture", "snm")
    ),
    ("lm-stopped", ("train-lm", "corpus", "--resume", "-o", "x")),
    ("syntactic", PERPLEXITY),
    ("syntactic", (*_PARSE, "--nbest", "3")),
    ("syntactic-stopped", ("train-lm", *_RESUME)),
    ("parser-stopped", ("train-parser", *_RESUME)),
    ("pipeline-stopped", ("train-parser", *_RESUME, *_STOPPED)),
    ("lm-full", ("train-lm", *_RESUME)),
    *(
        (f"parser-{name}", ("train-parser", *_RESUME))
        for name in ("fast", "accurate", "graph", "linear", "mst")
    ),
    ("tagger-sparse", ("train-tagger", *_RESUME)),
    ("labeller", ("train-tagger", *_RESUME)),
    ("segmenter-trained", ("train-parser", *_RESUME)),
    *((f"classifier-{name}", ("train-classifier", *_RESUME)) for name in ("linear", "bilstm")),
)


def attacked(name: str, use: tuple[str, ...]) -> str:
    """Return the directory that is attacked where a command reads `x`: of a model, its run."""
    return "x/last" if "--resume" in use and not name.endswith("-stopped") else "x"


def lay_out(folder: Path) -> None:
    """Write the texts that models are trained and used on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TEXTS:
        shutil.copy(KEPT / name, folder / name)
    rows = [line.split("\t") for line in (KEPT / "train.conllu").read_text("utf-8").splitlines()]
    words = (
        f"{row[1]}\t{row[3]}\n" if len(row) == 10 else "\n" for row in rows if row[0][:1] != "#"
    )
    (folder / "words.txt").write_text("".join(words), "utf-8")
    texts = (KEPT / "text.txt").read_text("utf-8").splitlines()
    labelled = (f"{text}\t{'question' if text[-1] == '?' else 'other'}\n" for text in texts)
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(labelled), "utf-8")


def make(commands: Commands, name: str, folder: Path) -> Path:
    """Return a model, corpus or run by its name, trained in a directory of texts if need be."""
    if (KEPT / name).exists():
        return KEPT / name
    for needed in NEEDS.get(name, ()):
        if not (folder / needed).exists():
            source = make(commands, needed, folder)
            if source.parent == KEPT:
                shutil.copytree(source, folder / needed)
    if not (folder / name).exists():
        done = commands(*MADE[name], "-o", name, cwd=folder)
        assert done.code == (130 if name.endswith("-stopped") else 0), done
    return folder / name
