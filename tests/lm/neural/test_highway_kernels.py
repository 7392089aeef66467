"""The Triton kernels of rhn: compiled for GPUs, and run in Triton's interpreter.

Triton comes with the CUDA builds of torch only, and is a gigabyte on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton comes with the CUDA builds of torch only")

from triton.backends.compiler import GPUTarget  # noqa: E402

from seqtool.lm.neural import highway_kernels  # noqa: E402

HERE = Path(__file__).parent
# KiB of shared memory that a program may have on GPUs of a compute capability; the first is that of
# later GPUs for which the same code is made
MOST_SHARED = {80: 99, 90: 227}


def test_interpreted_kernels_are_the_equations() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(HERE / "interpreted_kernels.py")],
        cwd=HERE.parents[1],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


@pytest.fixture
def compile_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], list[Any]]:
    """Return what makes kernels compile for a GPU, not run, and gathers what comes out."""
    compiled: list[Any] = []

    class Compiled:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            return lambda *args, **options: compiled.append(
                self.kernel.warmup(*args, grid=grid, **options)
            )

    for name in ("forward_kernel", "backward_kernel"):
        monkeypatch.setattr(highway_kernels, name, Compiled(getattr(highway_kernels, name)))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def choose(capability: int) -> list[Any]:
        driver = SimpleNamespace(
            get_current_device=lambda: capability,  # each has a cache of its own
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", capability, 32),
        )
        monkeypatch.setattr(triton.runtime.driver, "_active", driver)
        return compiled

    return choose


@pytest.mark.parametrize("capability", MOST_SHARED)
@pytest.mark.parametrize(
    ("shape", "num_gates", "masked", "half", "precision"),
    [
        ((2, 20, 830, 3), 2, True, False, "high"),
        ((2, 128, 830, 2), 2, False, True, "high"),
        ((2, 128, 830, 2), 3, True, False, "high"),
        ((1, 1, 1, 1), 3, False, False, "highest"),
    ],
    ids=["tf32", "bf16", "wide", "exact"],
)
def test_kernels_compile_for_gpus(
    shape: tuple[int, int, int, int],
    num_gates: int,
    masked: bool,
    half: bool,
    precision: str,
    capability: int,
    compile_only: Callable[[int], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, batch, size, depth = shape
    compiled = compile_only(capability)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    width = num_gates * size
    sizes = ((steps, batch, width), (batch, size), (depth, size, width), (depth - 1, width))
    parts = [torch.zeros(sizes).requires_grad_() for sizes in sizes]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        outputs = highway_kernels.MicroStepKernels.apply(
            *parts, torch.zeros(batch, size) if masked else None
        )
    outputs.sum().backward()
    assert len(compiled) == 2 * steps * depth + 1
    for kernel in {id(kernel): kernel for kernel in compiled}.values():
        assert kernel.metadata.target.arch == capability
        assert kernel.metadata.shared <= MOST_SHARED[capability] * 1024
        if precision == "high" and "tt.dot" in kernel.asm["ttir"]:
            assert "mma" in kernel.asm["ptx"]  # by tensor cores
