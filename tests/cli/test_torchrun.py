"""`torchrun -m seqtool train-lm` as a user meets it: two processes, gloo, the CPU."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or sys.platform == "win32",
    reason="needs torch.distributed with gloo",
)

RUN = (
    *("--hidden", "4", "--batch-size", "4", "--bptt", "5", "--dropout", "0.2", "--epochs", "1"),
    *("--device", "cpu", "--json"),
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    chooser = random.Random(1)
    for name, num_lines in (("train", 60), ("valid", 12)):
        lines = [" ".join(chooser.choices("abcdef", k=5)) for _ in range(num_lines)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_two_processes_speak_with_one_voice(root: Path, text: Path, tmp_path: Path) -> None:
    output = tmp_path / "lm"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run = subprocess.run(
        [*launcher, "--nproc-per-node", "2", "-m", "seqtool", "train-lm", text, "-o", output, *RUN],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert (result["model"], result["epochs"]) == (str(output), 1)
    assert run.stderr.count("with 1 thread in each of 2 processes") == 1
    assert "Warning: " not in run.stderr
    assert (output / "weights.safetensors").is_file()
    saved = load_file(output / "last" / "state.safetensors")
    assert saved["carried.0.0"].shape == saved["rank1.carried.0.0"].shape == (2, 4)
    card = (output / "README.md").read_text()
    assert "    torchrun --nproc-per-node 2 -m seqtool train-lm" in card


@pytest.mark.parametrize("rank", ["0", "1"])
def test_other_commands_are_refused_once(
    seqtool: Callable[..., Any], text: Path, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    told = (
        "error: ngram runs in one process, but torchrun started 2\n"
        "hint: start it without torchrun: seqtool ngram\n"
    )
    result = seqtool("ngram", "train", text)
    assert (result.code, result.stdout, result.stderr) == (1, "", told if rank == "0" else "")
