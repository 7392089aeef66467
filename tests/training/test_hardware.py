from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from seqtool.core import runtime
from seqtool.core.errors import ConfigError
from seqtool.training import hardware


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_devices_of_a_machine_without_a_gpu() -> None:
    assert hardware.choose_device() == "cpu"
    assert hardware.choose_device("cpu") == "cpu"
    assert hardware.choose_device("cpu:0") == "cpu"
    for name in ("cuda", "cuda:0", "mps", "cpu:1"):
        with pytest.raises(ConfigError, match=f"this machine has no {name} device") as caught:
            hardware.choose_device(name)
        assert caught.value.hint == "use --device cpu"


@pytest.mark.usefixtures("two_gpus")
def test_devices_of_a_machine_with_gpus() -> None:
    assert hardware.choose_device("auto") == "cuda"
    assert hardware.choose_device("cuda:1") == "cuda:1"
    with pytest.raises(ConfigError, match="this machine has no cuda:2 device") as caught:
        hardware.choose_device("cuda:2")
    assert caught.value.hint == "use --device cpu or cuda"


@pytest.mark.usefixtures("two_gpus")
def test_each_of_several_processes_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        monkeypatch.setattr(runtime, "place", lambda rank=rank: runtime.Place(rank, 2, rank, 2))
        assert hardware.choose_device("auto") == hardware.choose_device("cuda") == f"cuda:{rank}"
        assert hardware.choose_device("cpu") == "cpu"
        # in all processes, so that the first one tells of it
        for name in ("cuda:0", "cuda:1", "mps"):
            with pytest.raises(ConfigError, match=f"2 processes cannot all train on {name}"):
                hardware.choose_device(name)
    monkeypatch.setattr(runtime, "place", lambda: runtime.Place(0, 3, 0, 3))
    with pytest.raises(ConfigError, match="this machine has 2 GPUs for 3 processes"):
        hardware.choose_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cuda:-1", "cuda:", "CPU"])
def test_what_is_no_device(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no device is called '{name}'") as caught:
        hardware.choose_device(name)
    assert caught.value.hint == "choose auto, cpu, cuda or mps"


def test_threads(threads: int) -> None:
    assert hardware.set_threads(None) == threads
    assert hardware.set_threads(1) == 1
    assert torch.get_num_threads() == 1
    with pytest.raises(ConfigError, match="threads is 0, but must be at least 1"):
        hardware.set_threads(0)


def test_a_seed_repeats_what_is_random() -> None:
    hardware.seed_everything(7)
    first = torch.rand(5)
    hardware.seed_everything(7)
    assert torch.rand(5).equal(first)
    hardware.seed_everything(2**63 - 1)
    assert not torch.rand(5).equal(first)


@pytest.mark.parametrize("can_train", [True, False])
@pytest.mark.parametrize("is_fast", [True, False])
def test_precision(monkeypatch: pytest.MonkeyPatch, can_train: bool, is_fast: bool) -> None:
    monkeypatch.setattr(hardware, "has_bf16_layers", lambda: can_train)
    monkeypatch.setattr(runtime, "has_bf16_products", lambda: is_fast)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: is_fast or including_emulation
    )
    of_cpu = {name: hardware.describe_precision(name, "cpu") for name in ("auto", "fast", "bf16")}
    assert of_cpu["auto"] == ("float32", "")
    assert of_cpu["fast"] == ("bf16" if can_train and is_fast else "float32", "")
    really, note = of_cpu["bf16"]
    assert really == ("bf16" if can_train else "float32")
    assert ("cannot" in note, "slower" in note) == (not can_train, can_train and not is_fast)
    for name in ("auto", "fast"):  # a GPU that only emulates bf16 does not have it
        expected = "bf16, recurrent layers in float32" if is_fast else "float32"
        assert hardware.describe_precision(name, "cuda:1") == (expected, "")
    assert hardware.resolve_precision("float32", "cuda") == "float32"
    if can_train:
        really, note = hardware.describe_precision("bf16", "cpu", "gru layers")
        assert (really, note.endswith("gru layers in float32")) == (
            "bf16, gru layers in float32",
            True,
        )


def test_recurrent_layers_on_a_cpu_are_as_autocast_has_them() -> None:
    lstm, inputs = nn.LSTM(2, 3), torch.ones(4, 1, 2)
    if hardware.has_bf16_layers():
        with hardware.autocast("cpu", "bf16"):
            outputs = hardware.run_recurrent(lambda inputs: lstm(inputs)[0], inputs)
        assert outputs.dtype == torch.bfloat16
    double = hardware.run_recurrent(lambda inputs: lstm.double()(inputs)[0], inputs.double())
    assert double.dtype == torch.float64
