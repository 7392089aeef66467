"""All that plain text needs, trained from one treebank, stopped and resumed, and used."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtool.core import checkpoint
from seqtool.core.config import from_dict
from seqtool.core.errors import ConfigError, DataError, Interrupted, ModelError
from seqtool.core.progress import Event, RunStarted
from seqtool.parsing.parser.config import ParserConfig
from seqtool.parsing.parser.vote import Vote
from seqtool.parsing.pipeline.config import PARSERS, PRESETS, PipelineConfig, folders
from seqtool.parsing.pipeline.train import train_pipeline
from seqtool.parsing.tagger.config import TaggerConfig
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


def same_weights(first: Path, second: Path) -> bool:
    paths = [Path(folder, "weights.safetensors") for part in PARTS for folder in folders(part, 2)]
    return all((first / path).read_bytes() == (second / path).read_bytes() for path in paths)


def test_a_resumed_run_ends_the_same(models: Path) -> None:
    assert same_weights(models / "whole", models / "resumed")
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
    assert same_weights(models / "whole", output)
    for path in (Path("treebank", "train.conllu"), Path("treebank", "dev.conllu")):
        assert (output / path).read_bytes() == (models / "whole" / path).read_bytes()


def test_members_differ_and_work_together(models: Path) -> None:
    whole = models / "whole"
    pipeline = checkpoint.load(whole)
    text = "".join(random.Random(0).choices("dogsecatxX12 .!?-", k=2000)).strip()
    assert rebuild(pipeline.segment([text])) == text
    dev = models / "dev.conllu"

    works: dict[str, Callable[[Any], Any]] = {
        "segmenter": lambda model: model.segment([text]),
        "tagger": lambda model: model.tag_stream(read_conllu(dev), retag=True),
        "parser": lambda model: model.parse_stream(read_conllu(dev)),
    }
    for part, work in works.items():
        first, second = (checkpoint.load(whole / folder) for folder in folders(part, 2))
        assert (first.config.training.seed, second.config.training.seed) == (1, 2)
        assert any((first.weights[name] != second.weights[name]).any() for name in first.weights)
        together = work(first.ensemble([second]))
        for own, other in zip(work(getattr(pipeline, part)), together, strict=True):
            assert own.to_conllu() == other.to_conllu()


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
    # the vote's probabilities of arcs are fitted to the validation part, with predicted tags
    dev = list(read_conllu(output / "treebank" / "dev.conllu"))
    assert pipeline.is_calibrated
    assert pipeline.parser.calibrations == pipeline.parser.fit_calibrations(dev)
    header = checkpoint.read_header(output)
    damaged = replace(header, statistics={"calibrations": {"1": [["x"], [0.5]]}})
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
    error, hint = result.stderr.splitlines()
    assert "different treebanks" in error
    assert hint.startswith("hint: ")


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
    for options in (["--rules"], ["--pretokenized"], ["--presegmented"], ["--raw", "-f", "tree"]):
        assert seqtool("parse", text, "-m", models / "whole", *options).code == 0


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


@pytest.mark.parametrize(
    ("part", "options", "message"),
    [
        ("parser", [], "has no segmenter"),
        ("parser", ["--rules", "--retag"], "has no tagger"),
        ("", ["--rules", "--pretokenized"], "--rules"),
        ("", ["-f", "tree", "--gold", "t.txt"], "--gold"),
    ],
)
def test_what_cannot_be_is_refused(
    models: Path, tmp_path: Path, seqtool: Run, part: str, options: list[str], message: str
) -> None:
    (tmp_path / "t.txt").write_text("dogs")
    result = seqtool("parse", tmp_path / "t.txt", "-m", models / "whole" / part, *options)
    assert result.code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().split("\n")) == 2


def test_no_treebank_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "p"
    (tmp_path / "b.conllu").write_text("1\ta\n\n")
    with pytest.raises(DataError, match="2 columns"):
        train_pipeline(tmp_path / "b.conllu", output, from_dict(PipelineConfig, TINY))
    with pytest.raises(ConfigError, match="nothing is given to train on"):
        train_pipeline(output=output)
    assert not output.exists()
    output.mkdir()
    (output / "run.json").write_text('{"kind": "pipeline"}')
    with pytest.raises(ModelError) as refused:
        checkpoint.load(output)
    assert f"seqtool train-parser --resume -o {output}" in refused.value.hint


def test_the_command_trains_stops_and_goes_on(models: Path, tmp_path: Path, seqtool: Run) -> None:
    settings, output = tmp_path / "tiny.yaml", tmp_path / "p"
    settings.write_text(json.dumps(TINY))
    begin = ["train-parser", models / "train.conllu", "--raw", "--preset", "fast", "-o", output]
    result = seqtool(*begin, "--config", settings, "--max-minutes", "0")
    assert result.code == 130
    assert f"seqtool train-parser --resume -o {output}" in result.stderr
    assert "every tenth sentence is held out as dev: 6 of 60" in result.stderr
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
    config = PRESETS.resolve(
        "fast", file, {"training.seed": 7, "model.system": "swap"}, ["folds=6"]
    )
    assert (config.tagger.training.epochs, config.folds) == (3, 6)
    assert config.parser.model.system == "swap"
    assert {getattr(config, part).training.seed for part in PARTS} == {7}
    assert config.parser.model.encoder == "none"
    assert PRESETS.resolve(None, None, {}, []).parser.model.encoder == "bilstm"
    assert (config.graph.model.decoder, config.graphs) == ("graph", 0)
    assert (config.perceptron.model.classifier, config.perceptrons) == ("linear", 0)
    # epochs are of all that find heads, what else is of the training loop of the neural ones
    given = {"training.epochs": 2, "training.learning_rate": 0.5, "model.hidden_size": 8}
    given["model.fields"] = ("form", "upos")
    config = PRESETS.resolve("accurate", None, given, [])
    found = [getattr(config, part).training for part in PARSERS]
    assert [training.epochs for training in found] == [2, 2, 2]
    assert [training.learning_rate == 0.5 for training in found] == [True, True, False]
    # what is left out of a word is so for all that vote
    parsers = (config.parser, config.graph, config.perceptron)
    assert {parser.model.fields for parser in parsers} == {("form", "upos")}
    assert config.tagger.training.epochs > 2
    assert (config.parser.model.hidden_size, config.graph.model.hidden_size) == (8, 192)


@pytest.mark.parametrize("parser", ["parser", "perceptron"])
def test_vectors_are_for_the_parts_that_have_some(
    models: Path, tmp_path: Path, parser: str
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("dogs 1 0\nzebras 0 1\n")
    settings: Any = copy.deepcopy(TINY)
    settings |= {"parser": settings[parser], "segmenters": 1, "taggers": 1, "parsers": 1}
    for part in PARTS:
        settings[part]["training"]["epochs"] = 1
    output = tmp_path / "out"
    train_pipeline(
        models / "train.conllu", output, from_dict(PipelineConfig, settings),
        dev=models / "dev.conllu", device="cpu", embeddings=vectors, threads=1,
    )  # fmt: skip
    pipeline = checkpoint.load(output)
    assert "zebras" in pipeline.tagger.forms.symbols.ids_of("form")
    if parser == "parser":
        assert "zebras" in pipeline.parser.types.lexical.ids_of("form")
    (parsed,) = pipeline.parse_stream(pipeline.segment(["dogs see cats."]))
    assert parsed.column(HEAD).count("0") == 1


def test_the_first_steps_tell_how_long_all_takes(models: Path, tmp_path: Path) -> None:
    config = from_dict(PipelineConfig, {**TINY, "taggers": 1})
    told: list[float] = []
    with pytest.raises(Interrupted):
        train_pipeline(
            [models / "train.conllu"] * 100, tmp_path / "p", config, device="cpu", threads=1,
            on_estimate=told.append, should_stop=lambda step: bool(told),
        )  # fmt: skip
    lines = (tmp_path / "p" / "tagger" / "log.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    total = events[0]["total_steps"]
    first = next(event for event in events[1:] if event["step"] >= 100)
    # it has 6 shares of 21.2, beside 2 segmenters, 2 folds and 2 parsers
    seconds = first["seconds_left"] * total / (total - first["step"])
    assert told == pytest.approx([seconds * 21.2 / 6])


def test_a_limit_of_all_and_one_of_a_part_exclude_each_other() -> None:
    values = {"time_limit": "1h", "tagger": {"training": {"time_limit": "5m"}}}
    with pytest.raises(ConfigError) as error:
        from_dict(PipelineConfig, values)
    assert error.value.message == "time_limit is set, and tagger.training.time_limit as well"
    assert PRESETS.resolve("fast", None, {"training.time_limit": "1h"}, []).time_limit == "1h"


def test_parts_share_a_limit_of_time(models: Path, tmp_path: Path, seqtool: Run) -> None:
    settings, output = tmp_path / "tiny.yaml", tmp_path / "p"
    settings.write_text(json.dumps({**TINY, "segmenters": 1, "taggers": 1, "parsers": 1}))
    begin = ["train-parser", models / "train.conllu", "--raw", "--preset", "fast", "-o", output]
    begin += ["--config", settings, "--threads", "1", "--time-limit", "4s"]
    result = seqtool(*begin, "--max-minutes", "0")
    assert result.code == 130, result.stderr
    result = seqtool("train-parser", "--resume", "-o", output)
    assert result.code == 0, result.stderr
    parts = [output / part for part in PARTS]
    runs = [json.loads((part / "run.json").read_text()) for part in parts]
    limits = [seconds_of(run["config"]["training"]["time_limit"]) for run in runs]
    # 1, 6 and 6 shares; the two folds have 0.6 each
    assert limits == pytest.approx([4 * share / 14.2 for share in (1, 6, 6)], abs=0.06)
    logs = [(part / "log.jsonl").read_text().splitlines() for part in parts]
    assert all(json.loads(log[-1])["reason"] == "finished" for log in logs)
