"""What the library gives prints itself in one line that holds the figure people ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from classification.test_model import linear
from parsing.parser import tiny
from parsing.segmenter import tiny_segmenter
from parsing.tagger import toy
from toy_networks import save_lm

import seqtool
from seqtool.classification.evaluation import evaluate
from seqtool.core.config import Config
from seqtool.lm.mixture.model import MixedModel
from seqtool.parsing.parser.train import TrainedParser
from seqtool.parsing.pipeline.model import Pipeline

TEXT = "the dog sees a cat\na cat sees the dog\n" * 30


def public_things(folder: Path) -> Iterator[tuple[object, str]]:
    """Yield models and results, each with what its line must hold."""
    text = folder / "text.txt"
    text.write_text(TEXT)
    corpus = seqtool.prepare(text, folder / "corpus")
    yield corpus, "train="
    ngram = seqtool.train_ngram(text, folder / "ngram")
    yield ngram, "num_tokens=360"
    snm = seqtool.train_snm(text, folder / "snm")
    yield snm, "num_tokens=360"
    save_lm(folder / "neural", corpus, 2)
    models = [ngram.model, snm.model, seqtool.load(folder / "neural")]
    yield from ((model, "7 symbols") for model in models)
    lm = models[0]
    yield MixedModel(models[:2]), "7 symbols"
    yield lm.tokenizer.vocabulary, "7 symbols"
    measured = seqtool.evaluate_lm(lm, text)
    figure = f"={measured.perplexity:.6g}"
    yield measured, f"perplexity{figure}"
    yield seqtool.compare_lms([folder / "ngram", folder / "snm"], text), f"ngram{figure}"
    pairs = [seqtool.MinimalPair("the dog sees a cat", "dog the a sees cat")]
    yield pairs[0], "dog the"
    yield seqtool.evaluate_pairs(lm, pairs), "accuracy=1"
    yield next(seqtool.generate(lm)), "text="
    yield next(seqtool.score_words(lm, ["the"]))[0], "bits="
    tiny.write_treebank(trees := folder / "trees.conllu", 3)
    parser = tiny.random_parser(tiny.tiny_config())
    parser.save(folder / "parser", scores={"dev_uas": 2.5, "dev_las": 1.25}, data={})
    yield seqtool.load(folder / "parser"), "dev_las=1.25"
    yield (
        TrainedParser(folder, {"dev_las": 1.25}, 1.0, 10, 2, "float32", 2.0, "swap"),
        "dev_las=1.25",
    )
    yield seqtool.evaluate_parser(trees, trees), "LAS=100"
    tagger, segmenter = toy.random_tagger(), tiny_segmenter.random_segmenter()
    yield from ((part, part.kind) for part in (tagger, segmenter, linear()))
    yield Pipeline(segmenter, tagger, parser), "parser"
    yield parser.vocabulary, "Vocabulary("
    document = parser(seqtool.read_conllu(trees))
    yield from ((document, "3 sentences"), (document[0], "Sentence"), (document[0][0], "Token"))
    yield evaluate(["a", "b"], ["a", "a"], ["a", "b"]), "accuracy=50"
    yield linear()("a"), "probability="
    for name in seqtool.__all__:
        if isinstance(kind := getattr(seqtool, name), type) and issubclass(kind, Config):
            yield kind(), f"{name}()"
    yield seqtool.NeuralLMConfig(model=seqtool.ModelConfig(cell="rhn")), "cell='rhn'"


def test_all_of_them(tmp_path: Path) -> None:
    for thing, figure in public_things(tmp_path):
        line = repr(thing)
        assert figure in line
        assert len(line) < 200 + len(str(tmp_path)) * 2, line
        assert "\n" not in line
