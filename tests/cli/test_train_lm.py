"""`seqtool train-lm` as a user meets it."""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
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
SPLITS = ("train", "valid")
TINY = ("--hidden", "4", "--batch-size", "3", "--bptt", "5", "--epochs", "2", "--device", "cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    chooser = random.Random(1)
    for name, num_lines in (("train", 60), ("valid", 12)):
        lines = [
            " ".join(chooser.choices("abcdef", k=chooser.randint(1, 7))) for _ in range(num_lines)
        ]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def same_weights(one: Path, other: Path) -> bool:
    first, second = (load_file(path / "weights.safetensors") for path in (one, other))
    return first.keys() == second.keys() and all(v.equal(second[k]) for k, v in first.items())


def assert_error(result: Any, message: str, hint: str = "") -> None:
    """It failed with two lines that hold these words, and printed nothing else."""
    assert (result.code, result.stdout) == (1, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


def test_training_on_raw_text(seqtool: Run, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "내 모델"
    result = seqtool("train-lm", text, "-o", output, *TINY, "--seed", "3")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    prepared, *lines = result.stderr.splitlines()
    # by its own reckoning: six letters and two specials; nothing of the validation part is unknown
    num_words = {split: len((text / f"{split}.txt").read_text().split()) for split in SPLITS}
    assert prepared == (
        f"prepared {output / 'corpus'}: train {num_words['train']} words, "
        f"valid {num_words['valid']} words; vocabulary of 8 symbols; split by file"
    )
    assert lines[0].startswith("training for ")
    assert "(2 epochs)" in lines[0]
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[3].startswith("finished after ")
    assert lines[4].startswith("valid perplexity ")
    assert lines[4].endswith(f"model in {output}")
    typed = shlex.quote(str(output))  # its name has a blank
    assert lines[5] == f"next: seqtool eval-ppl -m {typed}  or  seqtool generate -m {typed}"
    assert len(lines) == 6
    # and that measures what the training held out, not another text
    measured = json.loads(seqtool("eval-ppl", "-m", output, "--json").stdout)
    assert (measured["text"], measured["split"]) == ([str(output / "corpus")], "valid")
    header = json.loads((output / "model.json").read_text())
    assert measured["perplexity"] == header["scores"]["valid_perplexity"]
    assert seqtool("generate", "-m", output, "--max-tokens", 2).code == 0
    assert (output / "corpus" / "corpus.json").is_file()
    for line in (output / "log.jsonl").read_text().splitlines():
        json.loads(line)


def test_what_was_prepared_is_said_once(seqtool: Run, tmp_path: Path) -> None:
    lines = ["a b c"] * 200
    lines[7] = "d"
    (tmp_path / "one.txt").write_text("\n".join(lines) + "\n")
    options = (*TINY, "--vocab-size", "5", "--set", "epochs=1", "--threads", "1")
    first = seqtool("train-lm", tmp_path / "one.txt", "-o", tmp_path / "m", *options)
    prepared, begun = first.stderr.splitlines()[:2]
    words = {
        name: (3 * split["sentences"] - 2 * split["unknown"], split["unknown"])
        for name, split in json.loads((tmp_path / "m" / "corpus" / "corpus.json").read_text())[
            "splits"
        ].items()
    }
    assert sum(num for num, _ in words.values()) == 199 * 3 + 1
    assert sum(unknown for _, unknown in words.values()) == 1
    parts = [
        f"{name} {num} words" + (f" ({1 / num:.2%} unknown)" if unknown else "")
        for name, (num, unknown) in words.items()
    ]
    assert prepared == (
        f"prepared {tmp_path / 'm' / 'corpus'}: {', '.join(parts)}; vocabulary of 5 symbols; "
        "each line was drawn for 90% train, 5% valid, 5% test, seed 0"
    )
    assert "(1 epoch)" in begun
    assert begun.endswith("with 1 thread")
    again = seqtool("train-lm", tmp_path / "m" / "corpus", "-o", tmp_path / "n", *TINY)
    assert again.code == 0
    assert again.stderr.startswith("training for ")


def test_json(seqtool: Run, text: Path, tmp_path: Path) -> None:
    result = seqtool("train-lm", text, "-o", tmp_path / "m", *TINY, "--json")
    assert result.code == 0
    (line,) = result.stdout.splitlines()
    trained = json.loads(line)
    assert set(trained) == {
        *("model", "seconds", "epochs", "parameters", "precision"),
        *("valid_perplexity", "tokens_per_second", "train_seconds"),
    }
    assert trained["model"] == str(tmp_path / "m")
    assert trained["epochs"] == 2
    assert 1 < trained["valid_perplexity"] < 20
    measured = seqtool("eval-ppl", tmp_path / "m" / "corpus", "-m", tmp_path / "m", "--json")
    assert json.loads(measured.stdout)["perplexity"] == trained["valid_perplexity"]


@pytest.mark.parametrize("can_train", [True, False])
@pytest.mark.parametrize("cell", ["gru", "rnn", "window", "rhn", "lstm"])
def test_what_is_in_bf16_is_said_and_recorded(
    seqtool: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str,
    can_train: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr("seqtool.training.hardware.has_bf16_layers", lambda: can_train)
    monkeypatch.setattr("seqtool.core.runtime.has_bf16_products", lambda: True)
    monkeypatch.setattr("seqtool.lm.neural.cells.numpy_is_fast", lambda: True)
    words = ("train-lm", text, "-o", tmp_path / "m", *TINY, "--cell", cell, "--precision", "bf16")
    result = seqtool(*words, "--json", "--force")
    has_float32_layers = cell in ("gru", "rnn", "window")
    expected = "float32"
    if can_train:
        expected = f"bf16, {cell} layers in float32" if has_float32_layers else "bf16"
    assert json.loads(result.stdout)["precision"] == expected
    assert json.loads((tmp_path / "m" / "model.json").read_text())["precision"] == expected
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("training for"))
    assert ("float32" in line) == (has_float32_layers or not can_train)


def test_without_a_corpus_the_sample_is_used(
    seqtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def train(corpus: Any, output: Path, config: NeuralLMConfig, **_: Any) -> None:
        seen.append((corpus, output, config))
        raise KeyboardInterrupt

    monkeypatch.setattr("seqtool.lm.neural.train.train_lm", train)
    result = seqtool("train-lm", "--cell", "rhn")
    assert result.code == 130
    assert "no CORPUS given: training on the shipped English sample" in result.stderr
    ((corpus, output, config),) = seen
    assert (Path(corpus) / "train.txt").is_file()
    assert output == Path("runs/lm")
    assert config.model.cell == "rhn"


def test_options_recipes_and_settings(seqtool: Run, text: Path, tmp_path: Path) -> None:
    """An option wins over the recipe, --set over both."""
    recipe = tmp_path / "my.yaml"
    recipe.write_text("model: {cell: gru, hidden_size: 3, layers: 2}\ntraining: {epochs: 1}\n")
    result = seqtool(
        "train-lm",
        text,
        "-o",
        tmp_path / "m",
        "--config",
        recipe,
        "--batch-size",
        3,
        "--bptt",
        5,
        "--hidden",
        4,
        "--optimizer",
        "sgd",
        "--lr",
        "0.5",
        "--dropout",
        "0.1",
        "--set",
        "hidden_size=5",
        "--set",
        "data.eval_batch_size=2",
        "--clip",
        0,
    )
    assert result.code == 0
    settings = json.loads((tmp_path / "m" / "run.json").read_text())["config"]
    model, training = settings["model"], settings["training"]
    assert (model["cell"], model["hidden_size"], model["layers"]) == ("gru", 5, 2)
    assert (model["dropout_input"], model["dropout_output"]) == (0.1, 0.1)
    assert (training["optimiser"], training["learning_rate"]) == ("sgd", 0.5)
    assert (training["epochs"], training["clip_norm"]) == (1, 0.0)
    assert settings["data"]["eval_batch_size"] == 2


def test_layers_are_projected(seqtool: Run, text: Path, tmp_path: Path) -> None:
    options = ("--hidden", 6, "--projection", 4, "--tied", "--epochs", 1, "--bptt", 5)
    last = ("--layers", 2, "--set", "last_size=5", "--batch-size", 3)
    seqtool("train-lm", text, "-o", tmp_path / "m", *options, *last)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "2 layers of 6 units, the last of 5, projected to 4, " in card
    weights = load_file(tmp_path / "m" / "weights.safetensors")
    assert [weights[f"cells.{n}.inner.weight_hr_l0"].shape for n in (0, 1)] == [(4, 6), (4, 5)]
    assert weights["embedding.weight"].shape[1] == 4
    corpus = tmp_path / "m" / "corpus"
    judged = seqtool("eval-ppl", corpus, "-m", tmp_path / "m", "--split", "valid", "--json")
    header = json.loads((tmp_path / "m" / "model.json").read_text())
    perplexity = header["scores"]["valid_perplexity"]
    assert json.loads(judged.stdout)["perplexity"] == pytest.approx(perplexity, rel=1e-9)


def test_the_list_of_settings_is_a_configuration(seqtool: Run, tmp_path: Path) -> None:
    result = seqtool("train-lm", "--list-settings")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert (
        '  cell: "lstm"                    # rnn, lstm, gru, rhn or window (Bengio\'s fixed window)'
        in lines
    )
    assert any(line.startswith("  embedding_size: null  ") for line in lines)
    assert all("#" in line or line.endswith(":") for line in lines)
    (tmp_path / "all.yaml").write_text(result.stdout)
    assert resolve(str(tmp_path / "all.yaml"), {}, []) == NeuralLMConfig()
    assert set(yaml.safe_load(result.stdout)) == {"description", "model", "data", "training"}


def test_stopping_after_some_minutes_and_resuming(seqtool: Run, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "my m"
    assert seqtool("train-lm", text, "-o", tmp_path / "whole", *TINY).code == 0
    result = seqtool("train-lm", text, "-o", output, *TINY, "--max-minutes", "0")
    assert (result.code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-2:] == [
        "interrupted: the run was interrupted at step 0; the state is saved",
        f"hint: continue with: seqtool train-lm --resume -o '{output}'",
    ]
    # a run that goes on is neither overwritten nor begun again
    result = seqtool("train-lm", text, "-o", output, *TINY)
    assert_error(result, "exists already", "continue it with --resume")
    result = seqtool("train-lm", "--resume", "-o", output)
    assert result.code == 0
    assert result.stderr.startswith("continuing at step 0 of ")
    assert same_weights(output, tmp_path / "whole")
    result = seqtool("train-lm", "--resume", "-o", output, "--epochs", "3", "--json")
    assert json.loads(result.stdout)["epochs"] == 3
    result = seqtool("train-lm", "--resume", "-o", output, "--hidden", "5")
    assert_error(result, "the run differs: model.hidden_size was 4, not 5", "--force")


def test_training_for_a_time(
    seqtool: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    # a hundredth of a second passes whenever somebody looks at the clock
    monkeypatch.setattr(time, "perf_counter", lambda: 0.01 * next(ticks))
    output = tmp_path / "m"
    limited = (*TINY, "--time-limit", "10s", "--schedule", "cosine")
    result = seqtool("train-lm", text, "-o", output, *limited, "--json")
    assert result.code == 0, result.stderr
    assert next(ticks) == pytest.approx(1000, abs=20)
    assert "training for 10s, as many epochs as fit in, " in result.stderr
    trained = json.loads(result.stdout)
    assert trained["epochs"] > 4
    record = json.loads((output / "run.json").read_text())
    assert record["config"]["training"]["time_limit"] == "10s"
    events = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "epoch"][-1]
    assert last["learning_rate"] < 0.05 * 0.002
    # it had the time that it was given: there is nothing left to do
    again = json.loads(seqtool("train-lm", "--resume", "-o", output, "--json").stdout)
    assert again["epochs"] == trained["epochs"]
    longer = ("train-lm", "--resume", "-o", output, "--time-limit", "15s", "--json")
    assert json.loads(seqtool(*longer).stdout)["epochs"] > trained["epochs"] + 1


def test_epochs_that_are_typed_end_a_training_for_a_time(
    seqtool: Run, text: Path, tmp_path: Path
) -> None:
    config, output = tmp_path / "timed.yaml", tmp_path / "m"
    config.write_text("training: {time_limit: 1h}\n")
    timed = ("train-lm", text, "-o", output, *TINY[:-4], "--device", "cpu", "--config", config)
    result = seqtool(*timed, "--set", "epochs=2", "--json")
    assert (result.code, json.loads(result.stdout)["epochs"]) == (0, 2)
    assert "note: --epochs takes the place of the time limit of 1h" in result.stderr
    result = seqtool(*timed, "--epochs", "1", "--time-limit", "1s", "--list-settings")
    assert "note: --time-limit takes the place of --epochs" in result.stderr
    assert yaml.safe_load(result.stdout)["training"]["time_limit"] == "1s"
    # so does a run that goes on
    limited = ("--time-limit", "0.1s", "--force", "--json")
    trained = json.loads(seqtool(*timed[:-2], *limited).stdout)
    more = trained["epochs"] + 2
    again = seqtool("train-lm", "--resume", "-o", output, "--epochs", str(more), "--json")
    assert (again.code, json.loads(again.stdout)["epochs"]) == (0, more)


def test_what_is_typed_of_a_prepared_corpus_is_compared_with_it(
    seqtool: Run, text: Path, tmp_path: Path
) -> None:
    corpus, output = tmp_path / "chars", tmp_path / "m"
    assert seqtool("prepare", text, "--unit", "char", "-o", corpus).code == 0
    for options in (("--unit", "word"), ("--set", "unit=word")):
        result = seqtool("train-lm", corpus, "-o", output, *TINY, *options)
        assert_error(result, "data.unit is word, but the corpus was prepared with char", "leave")
    assert seqtool("train-lm", corpus, "-o", output, *TINY, "--unit", "char").code == 0


BAD_OPTIONS: list[tuple[tuple[str, ...], str, str]] = [
    (("--cell", "lstmm"), "cell is 'lstmm'", "did you mean lstm"),
    (("--optimiser", "adamm"), "optimiser is 'adamm'", "did you mean adam"),
    (("--schedule", "cosin"), "schedule is 'cosin'", "did you mean cosine"),
    (("--precision", "half"), "precision is 'half'", "auto"),
    (("--unit", "words"), "unit is 'words'", "did you mean word"),
    (("--hidden", "0"), "hidden_size is 0, but must be at least 1", "change"),
    (("--lr", "0"), "learning_rate is 0.0, but must be more than 0", "change"),
    (("--time-limit", "soon"), "time_limit is 'soon', which is no time", "15m"),
    (("--lr", "nan"), "learning_rate is nan", "finite"),
    (("--dropout", "1"), "dropout_input is 1.0, but must be less than 1", "change"),
    (("--tied", "--embedding", "3"), "tied is true, but embedding_size is 3", "embedding_size"),
    (("--device", "cuda"), "this machine has no cuda device", "--device cpu"),
    (("--device", "tpu"), "no device is called 'tpu'", "choose auto, cpu, cuda or mps"),
    (("--set", "model.hiden=3"), "unknown setting model.hiden", "did you mean model.hidden_size"),
    (("--set", "hidden_size"), "--set hidden_size has no value", "name=value"),
    (("--set", "model.tied=perhaps"), "tied is 'perhaps', but must be true or false", "change"),
    (("--config", "ptb-lstm-cpuu"), "no recipe is called 'ptb-lstm-cpuu'", "did you mean"),
    (("--config", "nothing.yaml"), "nothing.yaml: no such configuration file", "--config"),
    (("--set", "schedule_cycle=3"), "schedule_cycle counts only where", "change schedule"),
    (("--bptt", "999"), "but 2,997 are needed for 3 streams of one", "lower --batch-size"),
]


@pytest.mark.parametrize(("options", "message", "hint"), BAD_OPTIONS)
def test_bad_options(
    seqtool: Run,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = seqtool("train-lm", text, "-o", tmp_path / "m", *TINY[:-2], *options)
    assert_error(result, message, hint)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model: {cell: rhn, depht: 3}\n", "unknown setting model.depht"),
        ("modle: {}\n", "unknown setting modle"),
        ("model:\n  cell: [lstm\n", "bad.yaml:3: not valid YAML"),
        ("just words\n", "bad.yaml: holds no settings"),
        ("model: 3\n", "model is 3, but must be a section of settings"),
        ("model: {hidden_size: many}\n", "hidden_size is 'many', but must be a whole number"),
        ("training: {epochs: -1}\n", "epochs is -1, but must be at least 1"),
        ("training: {optimiser: sgd, beta1: 1}\n", "beta1 is 1.0, but must be less than 1"),
        (b"model: \xff\n", "bad.yaml: not UTF-8 at byte 7"),
    ],
)
def test_bad_configuration_files(
    seqtool: Run, text: Path, tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    result = seqtool("train-lm", text, "-o", tmp_path / "m", "--config", path)
    assert_error(result, message)
    assert [item.name for item in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "empty"), (b"a b\n\xff\n", "text.txt:2: not UTF-8 at byte 4")],
)
def test_bad_texts(seqtool: Run, tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    result = seqtool("train-lm", path, "-o", tmp_path / "m", *TINY)
    assert_error(result, message)
    assert str(path) in result.stderr
    assert not (tmp_path / "m").exists()


def test_force_replaces_what_is_ours_and_nothing_else(
    seqtool: Run, text: Path, tmp_path: Path
) -> None:
    output = tmp_path / "m"
    assert seqtool("train-lm", text, "-o", output, *TINY).code == 0
    before = Path(shutil.copytree(output, tmp_path / "before"))
    # the new run cannot begin: the old one is still there
    assert_error(seqtool("train-lm", "nothing.txt", "-o", output, *TINY, "--force"), "no such file")
    assert same_weights(output, before)
    assert_error(
        seqtool("train-lm", output / "corpus", "-o", output, *TINY, "--force"),
        "which is to be replaced",
    )
    assert seqtool("train-lm", text, "-o", output, *TINY, "--force", "--seed", "2").code == 0
    assert not same_weights(output, before)
    home = tmp_path / "home"
    (home / "corpus").mkdir(parents=True)
    result = seqtool("train-lm", text, "-o", home, *TINY, "--force")
    assert_error(result, "so it will not be replaced", "-o")
    assert [item.name for item in home.iterdir()] == ["corpus"]


def test_a_nan_stops_and_says_how_to_go_on(seqtool: Run, text: Path, tmp_path: Path) -> None:
    wild = ("--optimiser", "sgd", "--lr", "1e30", "--clip", "0")
    result = seqtool("train-lm", text, "-o", tmp_path / "m", *TINY, *wild)
    assert result.code == 1
    error, hint = result.stderr.splitlines()[-2:]
    assert error.startswith("error: the loss ")
    assert " at step 2 (epoch 1)" in error
    assert hint == "hint: the last good state is kept: add --resume with a lower --lr"
    result = seqtool("train-lm", "--resume", "-o", tmp_path / "m", "--lr", "0.1", "--clip", "1")
    assert result.code == 0


def test_nothing_to_resume(seqtool: Run, tmp_path: Path) -> None:
    result = seqtool("train-lm", "--resume", "-o", tmp_path / "m")
    assert_error(result, "no run to resume is there", "train one first")
    assert not (tmp_path / "m").exists()


def test_tensorboard(
    seqtool: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch.utils.tensorboard", None)
        result = seqtool("train-lm", text, "-o", tmp_path / "m", *TINY, "--tensorboard")
    assert_error(result, "TensorBoard is not installed", "pip install 'seqtool[tensorboard]'")
    assert not (tmp_path / "m").exists()
    pytest.importorskip("tensorboard")
    result = seqtool("train-lm", text, "-o", tmp_path / "m", *TINY, "--tensorboard")
    assert result.code == 0
    assert len(list((tmp_path / "m" / "tensorboard").iterdir())) == 1


class Child:
    """`seqtool train-lm` in a process of its own, that trains long enough to be stopped."""

    def __init__(self, text: Path, output: Path, *options: object) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "seqtool", "train-lm", str(text), "-o", str(output)),
                *map(str, (*TINY, *options)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            text=True,
        )

    def wait_for(self, event: str) -> None:
        log = self.output / "log.jsonl"
        deadline = time.monotonic() + 120
        while not (log.is_file() and f'"event": "{event}"' in log.read_text()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=120)
        return self.process.returncode, stdout, stderr


LONG = ("--set", "training.epochs=6", "--dropout", "0.2")


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `LONG` that nobody stopped."""
    from seqtool.cli.app import main

    output = tmp_path_factory.mktemp("whole") / "m"
    assert main(["train-lm", str(text), "-o", str(output), *TINY, *LONG]) == 0
    return output


def test_ctrl_c_saves_and_the_run_goes_on(
    seqtool: Run, text: Path, tmp_path: Path, whole: Path
) -> None:
    child = Child(text, tmp_path / "m", *LONG)
    child.wait_for("epoch")
    child.process.send_signal(signal.SIGINT)
    code, stdout, stderr = child.end()
    assert (code, stdout) == (130, "")
    *_, interrupted, hint = stderr.splitlines()
    assert interrupted.startswith("interrupted: the run was interrupted at step ")
    assert hint == f"hint: continue with: seqtool train-lm --resume -o {tmp_path / 'm'}"
    assert "Traceback" not in stderr
    assert seqtool("train-lm", "--resume", "-o", tmp_path / "m").code == 0
    assert same_weights(tmp_path / "m", whole)


def test_a_killed_run_goes_on(seqtool: Run, text: Path, tmp_path: Path, whole: Path) -> None:
    child = Child(text, tmp_path / "m", *LONG, "--set", "training.save_minutes=0.001")
    child.wait_for("epoch")
    child.process.kill()
    assert child.end()[0] == -signal.SIGKILL
    assert seqtool("train-lm", "--resume", "-o", tmp_path / "m").code == 0
    assert same_weights(tmp_path / "m", whole)
    epochs = [
        json.loads(line)["epoch"]
        for line in (tmp_path / "m" / "log.jsonl").read_text().splitlines()
        if '"event": "epoch"' in line
    ]
    assert epochs == list(range(1, 7))


def test_a_full_disk(seqtool: Run, text: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for it: the log still fits, the state does not."""
    output = tmp_path / "m"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        result = seqtool("train-lm", text, "-o", output, *TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_error(result, f"{output / 'last'}: file too large", f"--resume -o {output}")
    assert sorted(item.name for item in output.iterdir()) == ["corpus", "log.jsonl", "run.json"]
    assert seqtool("train-lm", "--resume", "-o", output).code == 0
    # while the corpus is prepared
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        result = seqtool("train-lm", text, "-o", tmp_path / "n", *TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_error(result, "file too large")
    assert not (tmp_path / "n").exists()
