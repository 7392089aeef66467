from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

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


def test_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hardware.resolve_precision("auto", "cpu") == "float32"
    for can_train, expected in ((True, "bf16"), (False, "float32")):
        monkeypatch.setattr(hardware, "has_bf16_layers", lambda can_train=can_train: can_train)
        assert hardware.resolve_precision("bf16", "cpu") == expected
        assert ("cannot" in hardware.precision_note("bf16", "cpu")) is not can_train
    monkeypatch.setattr(hardware, "has_bf16_layers", lambda: True)
    for has_units, expected in ((True, "bf16"), (False, "float32")):

        def is_supported(including_emulation: bool = True, has_units: bool = has_units) -> bool:
            return has_units or including_emulation

        monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
        assert hardware.resolve_precision("auto", "cuda:1") == expected
        assert hardware.resolve_precision("fast", "cuda") == expected
        assert hardware.resolve_precision("float32", "cuda") == "float32"
    for faster, expected in ((True, "bf16"), (False, "float32")):
        monkeypatch.setattr(runtime, "has_bf16_products", lambda faster=faster: faster)
        assert hardware.resolve_precision("fast", "cpu") == expected
        assert hardware.resolve_precision("auto", "cpu") == "float32"
        assert hardware.resolve_precision("fast", "mps") == "float32"
        # of what is slower, the user is told
        assert ("slower here" in hardware.precision_note("bf16", "cpu")) is not faster
        assert hardware.precision_note("float32", "cpu") == ""
        assert hardware.precision_note("bf16", "cuda:0") == ""


class OnGPU(Tensor):
    """Numbers that say that they are on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda:0")


@pytest.fixture
def gpu_autocast() -> Iterator[None]:
    torch.set_autocast_enabled("cuda", True)
    yield
    torch.set_autocast_enabled("cuda", False)


@pytest.mark.usefixtures("gpu_autocast")
def test_recurrent_layers_on_a_gpu_are_in_float32() -> None:
    def run(inputs: Tensor) -> Tensor:
        assert not torch.is_autocast_enabled("cuda")
        assert inputs.dtype == torch.float32
        return inputs + 1

    inputs = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    outputs = hardware.run_recurrent(run, inputs.as_subclass(OnGPU))  # type: ignore[arg-type]
    assert torch.is_autocast_enabled("cuda")
    outputs.sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.tolist() == [1, 1]


def test_recurrent_layers_on_a_cpu_are_as_autocast_has_them() -> None:
    lstm, inputs = nn.LSTM(2, 3), torch.ones(4, 1, 2)
    if hardware.has_bf16_layers():
        with hardware.autocast("cpu", "bf16"):
            outputs = hardware.run_recurrent(lambda inputs: lstm(inputs)[0], inputs)
        assert outputs.dtype == torch.bfloat16
    double = hardware.run_recurrent(lambda inputs: lstm.double()(inputs)[0], inputs.double())
    assert double.dtype == torch.float64


def test_a_measured_figure_can_name_its_machine() -> None:
    machine = hardware.describe_machine("cpu")
    assert machine.keys() == {"processor", "cores", "threads", "device", "python", "torch", "numpy"}
    assert machine["numpy"].startswith(f"{np.__version__} with ")
    assert all(machine.values())
    assert machine["torch"] == torch.__version__
    assert int(machine["cores"]) >= int(machine["threads"]) >= 1
