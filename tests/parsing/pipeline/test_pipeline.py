"""All that plain text needs, trained from one treebank, stopped and resumed, and used."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.core.progress import Event, RunStarted
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.model import Parser
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.config import PARSERS, PRESETS, PipelineConfig, folders, resolve
from seqtool.parsing.pipeline.jobs import Job, Team
from seqtool.parsing.pipeline.train import train_pipeline
from seqtool.parsing.tagger import train as tagger_train
from seqtool.parsing.tagger.config import TaggerConfig
from seqtool.parsing.tagger.model import Tagger
from seqtool.parsing.tagger.train import train_tagger
from seqtool.training.config import TrainingConfig, seconds_of
from seqtool.treebank.conllu import read_conllu
from seqtool.treebank.document import rebuild
from seqtool.treebank.sentence import DEPREL, FORM, HEAD, LEMMA, UPOS, Sentence

Run = Callable[..., Any]

PARTS = ("segmenter", "tagger", "parser")  # the treebank needs no others
TINY = {
    "segmenter": {
        "model": {"character_units": 8, "token_units": 8},
        "learning": {
            "batch_characters": 512, "min_steps": 16, "window_characters": 32,
            "dropout_states": 0.1,
        },
        "training": {"epochs": 4, "learning_rate": 0.03, "precision": "float32"},
    },
    "tagger": {
        "model": {
            "lexical_size": 8, "character_size": 4, "num_filters": 4, "encoder_size": 8,
            "encoder_layers": 1, "lemma_size": 8,
        },
        "learning": {"batch_words": 32, "dropout_embeddings": 0.0},
        "training": {"epochs": 6, "learning_rate": 0.03, "precision": "float32"},
    },
    "parser": {
        "model": {"lexical_size": 8, "tag_size": 8, "label_size": 4, "hidden_size": 16},
        "learning": {"batch_size": 64, "averaging": 0.9},
        "training": {"epochs": 4, "learning_rate": 0.02, "precision": "float32"},
    },
    "graph": {
        "model": {
            "decoder": "graph", "encoder": "bilstm", "lexical_size": 8, "tag_size": 8,
            "encoder_size": 8, "encoder_layers": 1, "arc_size": 8, "relation_size": 4,
        },
        "learning": {"batch_words": 32, "averaging": 0.9},
        "training": {"epochs": 3, "learning_rate": 0.02, "precision": "float32"},
    },
    "perceptron": {
        "model": {"classifier": "linear", "fields": ["form", "upos"], "hash_bits": 12},
        "training": {"epochs": 3},
    },
    "folds": 2,
    "segmenters": 2,
    "taggers": 2,
    "parsers": 2,
}  # fmt: skip


def write_treebank(path: Path, num: int, seed: int) -> None:
    """Sentences such as `dogs see cats.`: the verb is the root."""
    chooser = random.Random(seed)
    texts = []
    for number in range(num):
        subject, obj = chooser.choices(["dogs", "cats", "birds", "cows"], k=2)
        words = [
            (subject, subject[:-1], "NOUN", "2", "nsubj", "_"),
            (verb := chooser.choice(["see", "hear"]), verb, "VERB", "0", "root", "_"),
            (obj, obj[:-1], "NOUN", "2", "obj", "SpaceAfter=No"),
            (".", ".", "PUNCT", "2", "punct", "_"),
        ]
        rows = [
            [str(i), form, lemma, upos, "_", "_", head, deprel, "_", misc]
            for i, (form, lemma, upos, head, deprel, misc) in enumerate(words, 1)
        ]
        comments = ["# newpar"] if number % 4 == 0 else []
        texts.append(Sentence(comments, rows, []).to_conllu())
    path.write_text("".join(texts))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a treebank, `whole`, and `resumed`, which was interrupted in each part.

    On one thread: several processes are asked by the clock whether to stop, not at each step.
    """
    folder = tmp_path_factory.mktemp("pipeline")
    write_treebank(folder / "train.conllu", 60, 0)
    write_treebank(folder / "dev.conllu", 12, 1)
    config = from_dict(PipelineConfig, TINY)
    train, dev = folder / "train.conllu", folder / "dev.conllu"
    parts: list[str] = []
    trained = train_pipeline(
        train, folder / "whole", config, dev=dev, device="cpu", threads=1, on_part=parts.append
    )
    assert parts == [
        *("tagger", "tagger-2", "segmenter", "segmenter-2", "fold 1 of 2", "fold 2 of 2"),
        *("parser", "parser-2"),
    ]
    assert trained.scores["dev_words"] == 100.0
    assert trained.scores["dev_upos"] == 100.0
    assert json.loads((folder / "whole" / "model.json").read_text())["scores"] == trained.scores

    resumed = folder / "resumed"
    asked: list[int] = []

    def ask(step: int) -> bool:
        """Stop somewhere in every part."""
        asked.append(step)
        return len(asked) % 25 == 0

    for attempt in range(20):
        begin = (
            {"resume": True} if attempt else {"train_files": train, "config": config, "dev": dev}
        )
        with suppress(Interrupted):
            train_pipeline(output=resumed, device="cpu", threads=1, should_stop=ask, **begin)
            break
    assert attempt > 4
    return folder


def test_a_resumed_run_ends_the_same(models: Path) -> None:
    for part in (*PARTS, *(f"{part}-2" for part in PARTS)):
        before, after = (
            load_file(models / name / part / "weights.safetensors") for name in ("whole", "resumed")
        )
        assert before.keys() == after.keys()
        assert all((before[name] == after[name]).all() for name in before), part
    assert not (models / "resumed" / "jackknife").exists()


@pytest.mark.parametrize(("name", "number"), [("folds", 3), ("taggers", 1)])
def test_what_the_treebank_was_tagged_with_stays(models: Path, name: str, number: int) -> None:
    output = models / "whole"
    config = replace(from_dict(PipelineConfig, TINY), **{name: number})
    before = (output / "run.json").read_bytes()
    with pytest.raises(ConfigError, match=f"{name} was 2 when the treebank was tagged"):
        train_pipeline(output=output, config=config, resume=True, device="cpu", threads=1)
    assert (output / "run.json").read_bytes() == before


def test_what_a_resumed_run_refuses_is_not_recorded(models: Path, tmp_path: Path) -> None:
    output = tmp_path / "p"
    config = from_dict(PipelineConfig, TINY)
    train, dev = models / "train.conllu", models / "dev.conllu"
    given: dict[str, Any] = {"output": output, "device": "cpu", "threads": 1}
    with pytest.raises(Interrupted):
        train_pipeline(train, config=config, dev=dev, should_stop=lambda step: step == 3, **given)
    before = (output / "run.json").read_bytes()
    other = replace(config, tagger=replace(config.tagger, training=TrainingConfig(seed=9)))
    with pytest.raises(ModelError, match="the run differs"):
        train_pipeline(config=other, resume=True, **given)
    with pytest.raises(ModelError, match="the run differs"):
        train_pipeline(dev, resume=True, **given)
    assert (output / "run.json").read_bytes() == before
    with pytest.raises(Interrupted):  # and so it goes on
        train_pipeline(resume=True, should_stop=lambda step: step == 5, **given)


def test_processes_side_by_side_end_the_same(models: Path, tmp_path: Path, seqtool: Run) -> None:
    """Stopped while the parsers are trained, in two processes, and resumed in this one."""
    output = tmp_path / "p"
    begun: set[str] = set()

    def on_event(event: Event, part: str) -> None:
        if isinstance(event, RunStarted):
            begun.add(part)

    with pytest.raises(Interrupted) as stopped:
        train_pipeline(
            models / "train.conllu", output, from_dict(PipelineConfig, TINY),
            dev=models / "dev.conllu", device="cpu", threads=2, on_event=on_event,
            should_stop=lambda step: "parser" in begun or "parser-2" in begun,
        )  # fmt: skip
    assert stopped.value.hint == f"continue with: seqtool train-parser --resume -o {output}"
    assert begun >= {"tagger", "tagger-2", "segmenter", "segmenter-2", "fold 1 of 2", "fold 2 of 2"}
    for part in ("parser", "parser-2"):
        assert (output / part / "run.json").is_file()
    trained = train_pipeline(output=output, resume=True, device="cpu", threads=1)
    header = json.loads((models / "whole" / "model.json").read_text())
    assert trained.scores == header["scores"]
    # its dev is not typed again
    again = seqtool("train-parser", "--raw", "--resume", "-o", output, "--device", "cpu")
    assert "dev words" in again.stderr
    for name in (*PARTS, *(f"{part}-2" for part in PARTS)):
        path = Path(name, "weights.safetensors")
        assert (output / path).read_bytes() == (models / "whole" / path).read_bytes(), name
    for path in (Path("treebank", "train.conllu"), Path("treebank", "dev.conllu")):
        assert (output / path).read_bytes() == (models / "whole" / path).read_bytes()


def test_members_differ_and_work_together(models: Path) -> None:
    whole = models / "whole"
    pipeline = checkpoint.load(whole)
    sentences = [list(read_conllu(models / "dev.conllu")) for _ in range(2)]
    for part, kind in (("tagger", Tagger), ("parser", Parser)):
        first, second = (checkpoint.load(whole / folder) for folder in folders(part, 2))
        assert isinstance(first, kind)
        assert isinstance(second, kind)
        assert (first.config.training.seed, second.config.training.seed) == (1, 2)
        name = {"tagger": "values.weight", "parser": "output.weight"}[part]
        assert (first.weights[name] != second.weights[name]).any()
        if part == "tagger":
            first.ensemble([second]).tag(sentences[0], retag=True)
            pipeline.tagger.tag(sentences[1], retag=True)
        else:
            first.ensemble([second]).parse(sentences[0])
            pipeline.parser.parse(sentences[1])
        assert [s.rows for s in sentences[0]] == [s.rows for s in sentences[1]]


def test_parsers_of_other_kinds_vote_with_the_parser(
    models: Path, tmp_path: Path, seqtool: Run
) -> None:
    output = tmp_path / "p"
    numbers = dict.fromkeys(("segmenters", "taggers", "parsers", "graphs"), 1)
    config = from_dict(PipelineConfig, {**TINY, **numbers, "perceptrons": 2})
    trained = train_pipeline(
        models / "train.conllu", output, config, dev=models / "dev.conllu", device="cpu"
    )
    assert trained.scores["dev_las"] == 100.0
    pipeline = checkpoint.load(output)
    assert isinstance(pipeline.parser, Vote)
    apart = [checkpoint.load(output / folder) for folder in ("parser", "graph", "perceptron")]
    kinds = [(parser.config.model.decoder, parser.config.model.classifier) for parser in apart]
    assert kinds == [("transition", "neural"), ("graph", "neural"), ("transition", "linear")]
    assert len(pipeline.parser.parsers[2].members) == 2
    assert [parser.config.model for parser in pipeline.parser.parsers] == [
        parser.config.model for parser in apart
    ]
    # the vote's probabilities of arcs are fitted to the validation part, with predicted tags
    dev = list(read_conllu(output / "treebank" / "dev.conllu"))
    assert pipeline.is_calibrated
    assert pipeline.parser.calibrations == pipeline.parser.fitted(dev)
    header = checkpoint.read_header(output)
    damaged = dataclasses.replace(header, statistics={"calibrations": {"1": [[2.0], [0.5]]}})
    checkpoint.amend(output, damaged, "")
    with pytest.raises(ModelError, match="the calibrations in its header are damaged"):
        checkpoint.load(output)
    checkpoint.amend(output, header, "")
    # a vote has one tree only: several, and how they are built, are those of the parser
    text = tmp_path / "t.txt"
    text.write_text("dogs see cats.")
    ranked = seqtool("parse", text, "-m", output, "--nbest", 2, "--beam", 4)
    assert ranked.code == 0, ranked.stderr
    assert ranked.stdout.count("# parse_rank = ") == 2
    traced = seqtool("parse", text, "-m", output, "--trace")
    assert traced.code == 0
    assert f"these are of the parser in {output / 'parser'} alone" in traced.stderr
    assert "alone" not in ranked.stderr
    # but where several models are named, these would be of none of them
    refused = seqtool("parse", text, "-m", output, "-m", models / "whole", "--trace")
    assert refused.code == 1
    assert "parsers that vote build no tree step by step" in refused.stderr
    shown = json.loads(seqtool("inspect", output, "--json").stdout)
    parts = ("segmenter", "tagger", "parser", "graph", "perceptron", "perceptron-2")
    assert shown["bytes"] == sum(
        (output / part / name).stat().st_size
        for part in parts
        for name in ("weights.safetensors", "vocabulary.json")
    )
    written = seqtool("analyse", "states", text, "-m", output, "-o", tmp_path / "states.npy")
    assert written.code == 1  # the parser is without an encoder, the graph is not asked
    assert "the parser has no encoder" in written.stderr


def test_segmenters_differ_and_work_together(models: Path, tmp_path: Path) -> None:
    whole = models / "whole"
    first, second = (checkpoint.load(whole / folder) for folder in folders("segmenter", 2))
    assert (first.config.training.seed, second.config.training.seed) == (1, 2)
    text = "".join(random.Random(0).choices("dogsecatxX12 .!?-", k=2000)).strip()
    pipeline = checkpoint.load(whole)
    together, joined, *apart = (
        [sentence.to_conllu() for sentence in splitter.segment([text])]
        for splitter in (pipeline, first.ensemble([second]), first, second)
    )
    assert together == joined
    assert joined not in apart
    assert rebuild(pipeline.segment([text])) == text


def test_several_members_may_be_replaced(models: Path) -> None:
    checkpoint.check_output(models / "whole", force=True)


def test_a_member_of_another_treebank_is_refused(
    models: Path, tmp_path: Path, seqtool: Run
) -> None:
    shutil.copytree(models / "whole", tmp_path / "model")
    lines = (models / "train.conllu").read_text().replace("VERB", "AUX")
    (tmp_path / "other.conllu").write_text(lines)
    settings = from_dict(TaggerConfig, TINY["tagger"])
    train_tagger(tmp_path / "other.conllu", tmp_path / "model" / "tagger-2", settings, force=True)
    result = seqtool("parse", models / "dev.conllu", "-m", tmp_path / "model")
    assert result.code == 1
    assert result.stderr.splitlines() == [
        f"error: {tmp_path / 'model'}: taggers of different treebanks or settings cannot tag "
        "together",
        "hint: train them on the same files, with settings that differ in the seed only",
    ]


def test_a_text_is_parsed(
    models: Path, seqtool: Run, tmp_path: Path, errors_of: Callable[[str], str]
) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("dogs see birds. cats\nhear cows.\n\nbirds see dogs.")
    output = tmp_path / "out.conllu"
    result = seqtool("parse", text, "-m", models / "whole", "-o", output)
    assert result.code == 0, result.stderr
    sentences = list(read_conllu(output))
    assert rebuild(sentences) == text.read_text()
    assert errors_of(output.read_text()) == ""
    assert [s.column(FORM) for s in sentences] == [
        ["dogs", "see", "birds", "."], ["cats", "hear", "cows", "."], ["birds", "see", "dogs", "."],
    ]  # fmt: skip
    assert sentences[0].column(UPOS) == ["NOUN", "VERB", "NOUN", "PUNCT"]
    assert sentences[0].column(LEMMA)[2] == "bird"
    # the same, one command after another
    pipeline = checkpoint.load(models / "whole")
    parsed = list(pipeline.parse_stream(pipeline.segment([text.read_text()], document=str(text))))
    assert [s.to_conllu() for s in parsed] == [s.to_conllu() for s in sentences]
    for options in (
        ["--rules"],
        ["--pretokenized"],
        ["--presegmented"],
        ["--raw", "--format", "tree"],
    ):
        assert seqtool("parse", text, "-m", models / "whole", *options).code == 0
    shown = json.loads(seqtool("inspect", models / "whole", "--json").stdout)
    # each part has weights and a vocabulary of its own
    own = [
        sum(
            (models / "whole" / folder / name).stat().st_size
            for name in ("weights.safetensors", "vocabulary.json")
        )
        for part in PARTS
        for folder in folders(part, 2)
    ]
    assert shown["bytes"] == sum(own)


def test_gold_columns_are_kept(models: Path, tmp_path: Path, seqtool: Run) -> None:
    path, output = tmp_path / "t.conllu", tmp_path / "out.conllu"
    sentence = next(iter(read_conllu(models / "dev.conllu")))
    for row in sentence.rows:
        row[HEAD] = row[DEPREL] = "_"
    sentence.rows[0][UPOS] = "X"
    sentence.rows[1][UPOS] = sentence.rows[1][LEMMA] = "_"
    path.write_text(sentence.to_conllu())
    assert seqtool("parse", path, "-m", models / "whole", "-o", output).code == 0
    assert next(read_conllu(output)).column(UPOS) == ["X", "VERB", "NOUN", "PUNCT"]
    assert seqtool("parse", path, "-m", models / "whole", "--retag", "-o", output).code == 0
    assert next(read_conllu(output)).column(UPOS) == ["NOUN", "VERB", "NOUN", "PUNCT"]


def test_an_interruption_says_how_to_go_on(models: Path, tmp_path: Path) -> None:
    config, output = from_dict(PipelineConfig, TINY), tmp_path / "my p"
    with pytest.raises(Interrupted) as stopped:
        train_pipeline(
            models / "train.conllu", output, config, device="cpu", should_stop=lambda step: True
        )
    assert stopped.value.hint == f"continue with: seqtool train-parser --resume -o '{output}'"


def test_what_cannot_be_is_refused(models: Path, tmp_path: Path, seqtool: Run) -> None:
    text = tmp_path / "t.txt"
    text.write_text("dogs")
    parser = models / "whole" / "parser"
    for arguments, message in (
        ([text, "-m", parser], "has no segmenter"),
        ([text, "-m", parser, "--rules", "--retag"], "has no tagger"),
        ([text, "-m", models / "whole", "--rules", "--pretokenized"], "leaves nothing to --rules"),
        ([text, "-m", models / "whole", "-f", "tree", "--gold", text], "--gold is for CoNLL-U"),
    ):
        result = seqtool("parse", *arguments)
        assert result.code == 1
        assert message in result.stderr
        assert len(result.stderr.strip().split("\n")) == 2
    (tmp_path / "b.conllu").write_text("1\ta\n\n")
    with pytest.raises(DataError, match="2 columns"):
        train_pipeline(tmp_path / "b.conllu", tmp_path / "p", from_dict(PipelineConfig, TINY))
    assert not (tmp_path / "p").exists()
    with pytest.raises(ConfigError, match="nothing is given to train on"):
        train_pipeline(output=tmp_path / "p")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "run.json").write_text('{"kind": "pipeline"}')
    with pytest.raises(ModelError) as refused:
        checkpoint.load(tmp_path / "p")
    assert f"seqtool train-parser --resume -o {tmp_path / 'p'}" in refused.value.hint


def test_the_command_trains_stops_and_goes_on(models: Path, tmp_path: Path, seqtool: Run) -> None:
    settings, output = tmp_path / "tiny.yaml", tmp_path / "p"
    settings.write_text(json.dumps(TINY))
    begin = ["train-parser", models / "train.conllu", "--raw", "--preset", "fast", "-o", output]
    result = seqtool(*begin, "--config", settings, "--max-minutes", "0")
    assert result.code == 130
    assert f"seqtool train-parser --resume -o {output}" in result.stderr
    # what was --raw goes on so; without --dev each part holds out some of the treebank
    result = seqtool("train-parser", "--resume", "-o", output, "--json")
    assert result.code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert {"segmenter_dev_words", "tagger_dev_upos", "parser_dev_las"} <= set(shown)
    assert "segmenter begins" in result.stderr
    assert (output / "model.json").is_file()
    assert "jackknife" not in {path.name for path in output.iterdir()}


def test_all_settings_are_listed_as_a_file_has_them(seqtool: Run) -> None:
    listed = yaml.safe_load(seqtool("train-parser", "--raw", "--list-settings").stdout)
    assert from_dict(PipelineConfig, listed) == PRESETS.configuration()
    assert listed["folds"] == 5
    assert from_dict(ParserConfig, listed["parser"]) == PRESETS.configuration().parser


def test_settings_are_combined(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("tagger:\n  training:\n    epochs: 3\nfolds: 4\n")
    config = resolve("fast", file, {"training.seed": 7, "model.system": "swap"}, ["folds=6"])
    assert (config.tagger.training.epochs, config.folds) == (3, 6)
    assert config.parser.model.system == "swap"
    assert {getattr(config, part).training.seed for part in PARTS} == {7}
    assert config.parser.model.encoder == "none"
    assert resolve(None, None, {}, []).parser.model.encoder == "bilstm"
    assert (config.graph.model.decoder, config.graphs) == ("graph", 0)
    assert (config.perceptron.model.classifier, config.perceptrons) == ("linear", 0)
    # epochs are of all that find heads, what else is of the training loop of the neural ones
    given = {"training.epochs": 2, "training.learning_rate": 0.5, "model.hidden_size": 8}
    given["model.fields"] = ("form", "upos")
    config = resolve("accurate", None, given, [])
    found = [getattr(config, part).training for part in PARSERS]
    assert [training.epochs for training in found] == [2, 2, 2]
    assert [training.learning_rate for training in found] == [0.5, 0.5, 0.1]
    # what is left out of a word is so for all that vote
    parsers = (config.parser, config.graph, config.perceptron)
    assert {parser.model.fields for parser in parsers} == {("form", "upos")}
    assert config.tagger.training.epochs > 2
    assert (config.parser.model.hidden_size, config.graph.model.hidden_size) == (8, 192)


def test_vectors_are_for_the_parts_that_have_some(models: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dogs 1 0\nzebras 0 1\n")
    settings: Any = copy.deepcopy(TINY)
    settings |= {"parser": settings["perceptron"], "segmenters": 1, "taggers": 1, "parsers": 1}
    for part in PARTS:
        settings[part]["training"]["epochs"] = 1
    output = tmp_path / "out"
    train_pipeline(
        models / "train.conllu", output, from_dict(PipelineConfig, settings),
        dev=models / "dev.conllu", device="cpu", embeddings=vectors, threads=1,
    )  # fmt: skip
    pipeline = checkpoint.load(output)
    assert "zebras" in pipeline.tagger.forms.symbols.ids_of("form")
    (parsed,) = pipeline.parse_stream(pipeline.segment(["dogs see cats."]))
    assert parsed.column(HEAD).count("0") == 1


def test_vectors_are_read_by_tagger_and_parser(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dogs 1 0\nzebras 0 1\n")
    of_folds: list[Any] = []
    prepare = tagger_train.prepare_data

    def noted(*arguments: Any, **options: Any) -> Any:
        of_folds.append(options["embeddings"])
        return prepare(*arguments, **options)

    monkeypatch.setattr(tagger_train, "prepare_data", noted)
    settings: Any = copy.deepcopy(TINY)
    for part in PARTS:
        settings[part]["training"]["epochs"] = 1
    output = tmp_path / "out"
    train_pipeline(
        models / "train.conllu", output, from_dict(PipelineConfig, settings),
        dev=models / "dev.conllu", device="cpu", embeddings=vectors, threads=1,
    )  # fmt: skip
    assert of_folds == [str(vectors)] * 2  # whose tags the parser reads
    pipeline = checkpoint.load(output)
    assert "zebras" in pipeline.tagger.forms.symbols.ids_of("form")
    assert "zebras" in pipeline.parser.types.lexical.ids_of("form")


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    write_treebank(tmp_path / "train.conllu", 40, 0)
    return tmp_path / "train.conllu"


def shares(
    treebank: Path, output: Path, monkeypatch: pytest.MonkeyPatch, threads: int, **parts: Any
) -> dict[str, float]:
    """Return the seconds of each job of the first stage, which is not run."""
    found: dict[str, float] = {}

    def note(self: Team, jobs: Sequence[Job], **options: Any) -> dict[str, Any]:
        for job in jobs:
            config = job.arguments.get("config")
            limit = config.training.time_limit if config else job.arguments["time_limit"]
            found[job.name] = seconds_of(limit)
        raise Interrupted("enough", hint="")

    monkeypatch.setattr(Team, "run", note)
    config = from_dict(PipelineConfig, {**TINY, **parts, "time_limit": "1000s"})
    with pytest.raises(Interrupted):
        train_pipeline(treebank, output, config, threads=threads, device="cpu")
    return found


def test_each_part_has_a_share_that_goes_with_its_cost(
    treebank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shares(treebank, tmp_path / "p", monkeypatch, 1)
    # two taggers of 6 epochs of 20, two segmenters of 4 of 8, two folds of 75 / 2 and two parsers
    # of 4 of 20
    cost = 2 * (120 + 32 + 37.5 + 80)
    assert found == pytest.approx(
        {
            **dict.fromkeys(("tagger", "tagger-2"), 1000 * 120 / cost),
            **dict.fromkeys(("segmenter", "segmenter-2"), 1000 * 32 / cost),
            **dict.fromkeys(("fold 1 of 2", "fold 2 of 2"), 1000 * 37.5 / cost),
        },
        abs=0.06,
    )


def test_the_epochs_of_small_treebanks_count(
    treebank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = {**TINY["parser"]["learning"], "small_epochs": 8}
    found = shares(
        treebank, tmp_path / "p", monkeypatch, 1, parser={**TINY["parser"], "learning": learning}
    )
    cost = 2 * (120 + 32 + 37.5 + 160)
    assert found["tagger"] == pytest.approx(1000 * 120 / cost, abs=0.06)


def test_parts_side_by_side_have_the_same_time(
    treebank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # everything comes in pairs, so that two at once take half the time
    found = shares(treebank, tmp_path / "p", monkeypatch, 2)
    assert found["tagger"] == pytest.approx(1000 * 120 / (120 + 32 + 37.5 + 80), abs=0.06)


def test_a_limit_of_all_and_one_of_a_part_exclude_each_other() -> None:
    values = {"time_limit": "1h", "tagger": {"training": {"time_limit": "5m"}}}
    with pytest.raises(ConfigError) as error:
        from_dict(PipelineConfig, values)
    assert error.value.message == "time_limit is set, and tagger.training.time_limit as well"
    assert PRESETS.resolve("fast", None, {"training.time_limit": "1h"}, []).time_limit == "1h"


def test_the_command_trains_for_a_time(
    treebank: Path, tmp_path: Path, seqtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    # a hundredth of a second passes whenever somebody looks at the clock
    monkeypatch.setattr(time, "perf_counter", lambda: 0.01 * next(ticks))
    settings, output = tmp_path / "tiny.yaml", tmp_path / "p"
    settings.write_text(
        json.dumps({**TINY, "segmenters": 1, "taggers": 1, "parsers": 1}), encoding="utf-8"
    )
    begin = ["train-parser", treebank, "--raw", "--preset", "fast", "-o", output]
    begin += ["--config", settings, "--threads", "1", "--time-limit", "15s"]
    listed = yaml.safe_load(seqtool(*begin, "--list-settings").stdout)
    assert listed["time_limit"] == "15s"
    assert listed["parser"]["training"]["time_limit"] is None
    result = seqtool(*begin, "--max-minutes", "0.01")
    assert result.code == 130, result.stderr
    result = seqtool("train-parser", "--resume", "-o", output, "--json")
    assert result.code == 0, result.stderr
    assert json.loads((output / "run.json").read_text())["config"]["time_limit"] == "15s"
    limits = {
        part: json.loads((output / part / "run.json").read_text())["config"]["training"]
        for part in ("segmenter", "tagger", "parser")
    }
    found = {part: seconds_of(training["time_limit"]) for part, training in limits.items()}
    # 120, 32 and 80 of 307
    assert found["tagger"] == pytest.approx(15 * 120 / 307, abs=0.06)
    assert found["segmenter"] == pytest.approx(15 * 32 / 307, abs=0.06)
    assert found["parser"] == pytest.approx(15 * 80 / 307, rel=0.15)
    assert 0.01 * next(ticks) == pytest.approx(15, rel=0.1)
    logs = [(output / part / "log.jsonl").read_text().splitlines() for part in found]
    assert all(json.loads(log[-1])["reason"] == "finished" for log in logs)
