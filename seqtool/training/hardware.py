"""The machine that a run uses: device, threads, seed, precision."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from seqtool.core import runtime
from seqtool.core.errors import ConfigError, counted


def choose_device(name: str = "auto") -> str:
    """Return the torch device for `auto`, `cpu`, `cuda` or `mps`.

    Of several processes on one machine, each gets a GPU of its own.

    Raises:
        ConfigError: the device is not there, or not for every process.
    """
    here = runtime.place()
    if name == "auto":  # mps is slower than the CPU for small recurrent steps: only on request
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif here.size > 1 and name not in ("cpu", "cuda"):
        raise ConfigError(
            f"{here.size} processes cannot all train on {name}", hint="use --device cpu or cuda"
        )
    if name == "cuda" and here.size > 1:
        num_gpus = torch.cuda.device_count()
        if num_gpus < here.local_size:
            raise ConfigError(
                f"this machine has {counted(num_gpus, 'GPU')} for {here.local_size} processes",
                hint="start one per GPU (--nproc-per-node), or use --device cpu",
            )
        name = f"cuda:{here.local_rank}"
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    kind, colon, index = name.partition(":")
    if kind not in counts or (colon and not index.isdecimal()):
        raise ConfigError(f"no device is called {name!r}", hint="choose auto, cpu, cuda or mps")
    if counts[kind] <= int(index or 0):
        raise ConfigError(f"this machine has no {name} device", hint="use --device cpu or auto")
    return kind if kind == "cpu" else name


def set_threads(num: int | None) -> int:
    """Set how many CPU threads torch and NumPy use, and return that number.

    None keeps torch's choice, which NumPy's products then follow: left alone, they would use every
    core, and wait for each other on a core that another program has. Several processes on one
    machine then share its cores.
    """
    num_processes = runtime.place().local_size
    if num is None and num_processes > 1:
        num = max(1, min(torch.get_num_threads(), len(_cores()) // num_processes))
    if num is not None:
        if num < 1:
            raise ConfigError(f"threads is {num}, but must be at least 1", hint="change --threads")
        torch.set_num_threads(num)
    threadpool_limits(torch.get_num_threads(), user_api="blas")
    return torch.get_num_threads()


def _cores() -> set[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch on every device, each process of a run with numbers of its own."""
    torch.manual_seed((seed + rank * _SEED_STRIDE) % 2**63)


_SEED_STRIDE = 0x5DEECE66D1234567  # odd and large: neighbouring seeds and ranks never meet


def prepare_device(device: str) -> None:
    """Make a GPU the current one and allow its fast float32 products (TF32).

    The CPU is left exact.
    """
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
        if ":" in device:  # its random state is saved and restored as the current one's
            torch.cuda.set_device(device)


def autocast(device: str, precision: str) -> AbstractContextManager[object]:
    """Return the context in which the forward pass runs: bfloat16 products, or plain float32."""
    if precision == "bf16":
        return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16)
    return nullcontext()


def resolve_precision(precision: str, device: str) -> str:
    """Return `float32` or `bf16`; `auto` means bf16 on a GPU that has it, else float32."""
    if precision != "auto":
        return precision
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return "bf16"
    return "float32"


@cache
def blas_of_numpy() -> str:
    """Return the library that makes NumPy's products, as its own record of the build names it."""
    build = np.show_config(mode="dicts")
    return str(build["Build Dependencies"]["blas"].get("name", ""))


def describe_machine(device: str, num_processes: int = 1) -> dict[str, str]:
    """Return what a measured figure must name, and what its last bits depend on.

    Processor, device, threads, and versions of the libraries that make products.
    """
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    machine = {
        "processor": processor,
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": f"{np.__version__} with {blas_of_numpy() or 'no BLAS'}",
    }
    if num_processes > 1:
        machine["processes"] = str(num_processes)
    if device.startswith("cuda"):
        machine["gpu"] = torch.cuda.get_device_name(device)
    return machine
