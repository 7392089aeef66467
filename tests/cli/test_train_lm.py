"""`seqtool train-lm` as a user meets it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from seqtool.lm.neural.config import NeuralLMConfig, resolve

Run = Callable[..., Any]
TINY = ("--hidden", "4", "--batch-size", "3", "--bptt", "5", "--epochs", "2", "--device", "cpu")


def same_weights(one: Path, other: Path) -> bool:
    first, second = (load_file(path / "weights.safetensors") for path in (one, other))
    return first.keys() == second.keys() and all(v.equal(second[k]) for k, v in first.items())


def test_training_on_raw_text(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    output = tmp_path / "내 모델"
    result = seqtool("train-lm", letters, "-o", output, *TINY, "--seed", "3")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    prepared, *lines = result.stderr.splitlines()
    # six letters and two specials; nothing of the validation part is unknown
    words = [len((letters / f"{name}.txt").read_text().split()) for name in ("train", "valid")]
    assert f"train {words[0]} words, valid {words[1]} words; vocabulary of 8 symbols" in prepared
    starts = ("training for ", "epoch 1/2", "epoch 2/2", "finished after ", "valid perplexity ")
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=False))
    typed = shlex.quote(str(output))  # its name has a blank
    assert lines[5:] == [f"next: seqtool eval-ppl -m {typed}  or  seqtool generate -m {typed}"]
    # that measures what the training held out, not another text
    measured = json.loads(seqtool("eval-ppl", "-m", output, "--json").stdout)
    assert [Path(text).resolve() for text in measured["text"]] == [output / "corpus"]
    assert measured["split"] == "valid"
    command = ("train-lm", output / "corpus", "-o", tmp_path / "n", *TINY, "--seed", 3, "--json")
    again = seqtool(*command)
    trained = json.loads(again.stdout)
    assert set(trained) == {
        *("model", "seconds", "epochs", "parameters", "precision"),
        *("valid_perplexity", "tokens_per_second", "train_seconds"),
    }
    assert (trained["model"], trained["epochs"]) == (str(tmp_path / "n"), 2)
    assert trained["valid_perplexity"] == measured["perplexity"]
    assert again.stderr.startswith("training for ")  # nothing was prepared
    header = json.loads((tmp_path / "n/model.json").read_text())
    assert header["precision"] == trained["precision"]
    for line in (output / "log.jsonl").read_text().splitlines():
        json.loads(line)


def test_tensorboard_has_a_file_for_each_run(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: make judges")
    assert seqtool("train-lm", letters, "-o", tmp_path / "m", *TINY, "--tensorboard").code == 0
    assert len(list((tmp_path / "m/tensorboard").iterdir())) == 1


def test_options_recipes_and_settings(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    """An option wins over the recipe, --set over both."""
    recipe = tmp_path / "my.yaml"
    recipe.write_text("model: {cell: gru, hidden_size: 3, layers: 2}\ntraining: {epochs: 1}\n")
    typed = (
        "--batch-size 3 --bptt 5 --hidden 4 --optimizer sgd --lr 0.5 --dropout 0.1 "
        "--set hidden_size=5 --set data.eval_batch_size=2 --clip 0"
    )
    given = ("-o", tmp_path / "m", "--config", recipe, *typed.split())
    assert seqtool("train-lm", letters, *given).code == 0
    settings = json.loads((tmp_path / "m" / "run.json").read_text())["config"]
    model, training = settings["model"], settings["training"]
    assert (model["cell"], model["hidden_size"], model["layers"]) == ("gru", 5, 2)
    assert (model["dropout_input"], model["dropout_output"]) == (0.1, 0.1)
    assert (training["optimiser"], training["learning_rate"]) == ("sgd", 0.5)
    assert (training["epochs"], training["clip_norm"]) == (1, 0.0)
    assert settings["data"]["eval_batch_size"] == 2


def test_the_list_of_settings_is_a_configuration(seqtool: Run, tmp_path: Path) -> None:
    result = seqtool("train-lm", "--list-settings")
    assert (result.code, result.stderr) == (0, "")
    assert all("#" in line or line.endswith(":") for line in result.stdout.splitlines())
    (tmp_path / "all.yaml").write_text(result.stdout)
    assert resolve(str(tmp_path / "all.yaml"), {}, []) == NeuralLMConfig()
    assert set(yaml.safe_load(result.stdout)) == {"description", "model", "data", "training"}


def test_stopping_after_some_minutes_and_resuming(
    seqtool: Run, refused: Callable[..., str], letters: Path, tmp_path: Path
) -> None:
    output, tiny = tmp_path / "my m", " ".join(TINY)
    assert "train one" in refused("train-lm --resume -o m", "no run to resume")
    assert seqtool("train-lm", letters, "-o", tmp_path / "whole", *TINY).code == 0
    result = seqtool("train-lm", letters, "-o", output, *TINY, "--max-minutes", "0")
    assert (result.code, result.stdout) == (130, "")
    assert f"continue with: seqtool train-lm --resume -o '{output}'" in result.stderr
    output = output.rename(tmp_path / "m")
    # a run that goes on is neither overwritten nor begun again
    hint = refused(f"train-lm {letters} -o m {tiny}", "exists already")
    assert "continue it with --resume" in hint
    result = seqtool("train-lm", "--resume", "-o", output)
    assert result.code == 0
    assert result.stderr.startswith("continuing at step 0 of ")
    assert same_weights(output, tmp_path / "whole")
    result = seqtool("train-lm", "--resume", "-o", output, "--epochs", "3", "--json")
    assert json.loads(result.stdout)["epochs"] == 3
    differs = "the run differs: model.hidden_size was 4, not 5"
    assert "--force" in refused("train-lm --resume -o m --hidden 5", differs)


def test_training_for_a_time(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    config, output = tmp_path / "timed.yaml", tmp_path / "m"
    config.write_text("training: {time_limit: 1h, schedule: cosine}\n")
    timed = ("train-lm", letters, "-o", output, *TINY[:-4], *TINY[-2:], "--config", config)
    resumed = ("train-lm", "--resume", "-o", output, "--json")
    trained = json.loads(seqtool(*timed, "--time-limit", "1s", "--json").stdout)
    assert trained["train_seconds"] > 0.8
    # it had the time that it was given: there is nothing left to do
    assert json.loads(seqtool(*resumed).stdout)["epochs"] == trained["epochs"]
    # epochs that are typed take the place of a limit that a run, or a file, has
    again = json.loads(seqtool(*resumed, "--epochs", trained["epochs"] + 2).stdout)
    assert again["epochs"] == trained["epochs"] + 2
    counted = seqtool(*timed, "--set", "epochs=2", "--json", "--force")
    assert json.loads(counted.stdout)["epochs"] == 2
    listed = seqtool(*timed, "--epochs", "1", "--time-limit", "1s", "--list-settings")
    assert yaml.safe_load(listed.stdout)["training"]["time_limit"] == "1s"


def test_what_is_typed_of_a_prepared_corpus_is_compared_with_it(
    seqtool: Run, refused: Callable[..., str], letters: Path, tmp_path: Path
) -> None:
    corpus, tiny = tmp_path / "chars", " ".join(TINY)
    assert seqtool("prepare", letters, "--unit", "char", "-o", corpus).code == 0
    for options in ("--unit word", "--set unit=word"):
        message = "unit is word, but the corpus was prepared with char"
        refused(f"train-lm chars -o m {tiny} {options}", message)
    assert seqtool("train-lm", corpus, "-o", tmp_path / "m", *TINY, "--unit", "char").code == 0


def test_force_replaces_what_is_ours_and_nothing_else(
    seqtool: Run, refused: Callable[..., str], letters: Path, tmp_path: Path
) -> None:
    output, tiny = tmp_path / "m", " ".join(TINY)
    assert seqtool("train-lm", letters, "-o", output, *TINY).code == 0
    before = Path(shutil.copytree(output, tmp_path / "before"))
    # the new run cannot begin: the old one is still there
    for text, message in (("nothing.txt", "no such file"), ("m/corpus", "to be replaced")):
        refused(f"train-lm {text} -o m {tiny} --force", message)
    assert seqtool("train-lm", letters, "-o", output, *TINY, "--force", "--seed", "2").code == 0
    assert not same_weights(output, before)
    (tmp_path / "home/corpus").mkdir(parents=True)
    refused(f"train-lm {letters} -o home {tiny} --force", "so it will not be replaced")


def test_a_nan_stops_and_says_how_to_go_on(seqtool: Run, letters: Path, tmp_path: Path) -> None:
    wild = ("--optimiser", "sgd", "--lr", "1e30", "--clip", "0")
    result = seqtool("train-lm", letters, "-o", tmp_path / "m", *TINY, *wild)
    error, hint = result.stderr.splitlines()[-2:]
    assert (result.code, error[:16]) == (1, "error: the loss ")
    assert "--resume with a lower --lr" in hint
    result = seqtool("train-lm", "--resume", "-o", tmp_path / "m", "--lr", "0.1", "--clip", "1")
    assert result.code == 0


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on(
    seqtool: Run, letters: Path, tmp_path: Path, root: Path, sent: signal.Signals
) -> None:
    output, whole, long = tmp_path / "m", tmp_path / "w", (*TINY, "--epochs", "6", "--dropout", 0.2)
    assert seqtool("train-lm", letters, "-o", whole, *long).code == 0
    words = (letters, "-o", output, *long, "--set", "training.save_minutes=0.001")
    child = subprocess.Popen(
        [sys.executable, "-m", "seqtool", "train-lm", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    )
    log, deadline = output / "log.jsonl", time.monotonic() + 120
    while not (log.is_file() and '"event": "epoch"' in log.read_text()):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(sent)
    stdout, stderr = child.communicate(timeout=120)
    if sent == signal.SIGINT:
        assert (child.returncode, stdout) == (130, "")
        assert f"hint: continue with: seqtool train-lm --resume -o {output}" in stderr
        assert "Traceback" not in stderr
    assert seqtool("train-lm", "--resume", "-o", output).code == 0
    assert same_weights(output, whole)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    epochs = [event["epoch"] for event in events if event["event"] == "epoch"]
    assert epochs == list(range(1, 7))


def test_two_processes_of_torchrun_speak_with_one_voice(
    root: Path, letters: Path, tmp_path: Path
) -> None:
    output = tmp_path / "lm"

    def torchrun(*words: object) -> Any:
        launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
        return subprocess.run(
            [*launcher, "--nproc-per-node", "2", "-m", "seqtool", *map(str, words)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
            check=False,
        )

    run = torchrun("train-lm", letters, "-o", output, *TINY, "--batch-size", "4", "--json")
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert (result["model"], result["epochs"]) == (str(output), 2)
    assert run.stderr.count("with 1 thread in each of 2 processes") == 1
    assert "Warning: " not in run.stderr
    saved = load_file(output / "last" / "state.safetensors")
    assert saved["carried.0.0"].shape == saved["rank1.carried.0.0"].shape == (2, 4)
    assert "torchrun --nproc-per-node 2 -m seqtool train-lm" in (output / "README.md").read_text()
    # other commands are refused, once
    assert torchrun("ngram", "train", letters).stderr.count("error: ngram runs in one process") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--cell lstmm", "cell is 'lstmm'"),
        ("--device tpu", "no device is called 'tpu'"),
        ("--set model.hiden=3", "unknown setting model.hiden"),
        ("--set hidden_size", "--set hidden_size has no value"),
        ("--set schedule_cycle=3", "schedule_cycle counts only"),
        ("--bptt 999", "2,997 are needed"),
        ("--config ptb-lstm-cpuu", "no recipe is called 'ptb-lstm-cpuu'"),
        ("--config typo.yaml", "unknown setting model.depht"),
        ("--config bad.yaml", "bad.yaml:3: not valid YAML"),
        ("nothing.txt", "nothing.txt: no such file"),
        ("bad.txt", "bad.txt:2: not UTF-8 at byte 4"),
    ],
)
def test_mistakes(refused: Callable[..., str], letters: Path, options: str, message: str) -> None:
    Path("typo.yaml").write_text("model: {cell: rhn, depht: 3}\n")
    Path("bad.yaml").write_text("model:\n  cell: [lstm\n")
    Path("bad.txt").write_bytes(b"a b\n\xff\n")
    text = "" if options.endswith(".txt") else letters
    refused(f"train-lm {text} -o m {' '.join(TINY)} {options}", message)
