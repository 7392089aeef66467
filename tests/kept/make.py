"""Makes the tiny models, corpora and runs of this folder anew, as after a change of their format.

    PYTHONPATH=. python tests/kept/make.py

Tests that attack models, or only use one, read them; those of text are of the first 150 lines of
the English sample, those of trees of the first 40 of the Korean one.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import seqtool
from seqtool.cli.app import main
from seqtool.lm.neural.config import DataConfig, ModelConfig, NeuralLMConfig
from seqtool.training.config import TrainingConfig

LM = "--hidden 6 --epochs 1 --set data.batch_size=4 --set data.bptt=8"
WORDS = "--set model.lexical_size=4 --set model.tag_size=4"
TREES = "train.conllu --dev dev.conllu --seed 1 --threads 1"
ONE_EPOCH = "--epochs 1 --set training.precision=float32"
SEGMENTER = ("character_size", "character_units", "form_size", "token_units")
TAGGER = ("lexical_size", "num_filters", "lemma_size")
PARTS = " ".join(
    [
        *(f"--set {part}.training.epochs=1" for part in ("segmenter", "tagger", "parser")),
        *(f"--set {part}.training.precision=float32" for part in ("segmenter", "tagger", "parser")),
        *(f"--set segmenter.model.{name}=4" for name in SEGMENTER),
        *(f"--set tagger.model.{name}=4" for name in TAGGER),
        "--set tagger.model.encoder_size=6 --set parser.model.hidden_size=8",
        "--set parser.model.lexical_size=4 --set parser.model.tag_size=4 --set folds=2",
    ]
)
CELLS = ("rnn", "lstm", "gru", "rhn", "window")
COMMANDS = {
    "corpus": "prepare text.txt --valid valid.txt",
    "corpus-bpe": "prepare text.txt --valid valid.txt --unit bpe --vocab-size 120",
    **{f"lm-{cell}": f"train-lm corpus --cell {cell} --threads 1 {LM}" for cell in CELLS},
    "lm-bpe": f"train-lm corpus-bpe --cell lstm --threads 1 {LM}",
    "lm-maxent": f"train-lm corpus --cell lstm --threads 1 {LM} --output-layer maxent "
    "--set model.output.direct_size=1024",
    "ngram": "ngram train corpus --order 3",
    "parser": f"train-parser {TREES} {ONE_EPOCH} --hidden 8 {WORDS}",
    "parser-bilstm": f"train-parser {TREES} {ONE_EPOCH} --preset accurate --hidden 8 {WORDS} "
    "--set model.encoder_size=6 --set model.encoder_layers=1",
    "tagger": f"train-tagger {TREES} {ONE_EPOCH} --set model.encoder_size=6 "
    "--set model.encoder_layers=1 " + " ".join(f"--set model.{name}=4" for name in TAGGER),
    "segmenter": f"train-parser --raw --only segmenter {TREES} {ONE_EPOCH} "
    + " ".join(f"--set model.{name}=4" for name in SEGMENTER),
    "pipeline": f"train-parser {TREES} --raw --fast {PARTS}",
}


def run(command: str) -> None:
    """Run a command, which must do what it is for."""
    if main(shlex.split(command)):
        raise SystemExit(f"failed: {command}")


def make() -> None:
    """Make all, in the current directory."""
    for name, command in COMMANDS.items():
        shutil.rmtree(name, ignore_errors=True)
        run(f"{command} -o {name}")
        for left in ("last", "treebank", "jackknife"):
            for folder in (Path(name), *Path(name).glob("*/")):
                shutil.rmtree(folder / left, ignore_errors=True)
    for name in ("mixture", "lm-stopped"):
        shutil.rmtree(name, ignore_errors=True)
    run("eval-ppl valid.txt -m lm-lstm -m ngram --weights 0.4,0.6 --save-mixture mixture")
    run("parse dev.conllu -m parser -o parsed.conllu")
    config = NeuralLMConfig(
        model=ModelConfig(cell="lstm", hidden_size=6),
        data=DataConfig(batch_size=4, bptt=8),
        training=TrainingConfig(epochs=3),
    )
    try:
        seqtool.train_lm(
            "corpus", "lm-stopped", config, threads=1, should_stop=lambda step: step == 7
        )
    except seqtool.Interrupted:
        pass
    else:
        raise SystemExit("the run was not stopped")
    for path in Path().glob("**/run.json"):  # no path of this machine
        path.write_text(path.read_text("utf-8").replace(f"{Path.cwd()}/", ""), "utf-8")


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    make()
