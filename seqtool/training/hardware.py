"""What a run trains on: device, threads, seed, precision, and several processes (torchrun).

Processes that train one model all hold the weights, and each reads its own streams. What they agree
on (gradients, losses, when to stop) goes through torch.distributed: between CPUs by gloo, gradients
between GPUs by NCCL.
"""

from __future__ import annotations

import atexit
import gc
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch import distributed as torch_distributed

from seqtool.core import runtime
from seqtool.core.errors import ConfigError, Interrupted, SeqtoolError, TrainingError, counted
from seqtool.core.processes import share_of_cores

Content = TypeVar("Content")
Loss = Callable[[int], tuple[Tensor, int]]

MAX_THREADS = 1024  # with very many, the system ends the process
# the first process may prepare a large corpus, or measure the model, while the others wait; one
# that is gone is noticed at once, by its connection
PATIENCE = timedelta(days=1)


def choose_device(name: str = "auto") -> str:
    """Return the torch device for `auto`, `cpu`, `cuda` or `mps`; a ConfigError if there is none.

    Of several processes on one machine, each gets a GPU of its own.
    """
    here = runtime.place()
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":  # mps is slower than the CPU for small recurrent steps: only on request
        name = "cuda" if num_gpus else "cpu"
    if here.size > 1 and name not in ("cpu", "cuda"):
        what = f"{here.size} processes cannot all train on {name}"
        raise ConfigError(what, hint="use --device cpu or cuda")
    if here.size > 1 and name == "cuda":
        if num_gpus < here.local_size:
            what = f"this machine has {counted(num_gpus, 'GPU')} for {here.local_size} processes"
            hint = "start one per GPU (--nproc-per-node), or use --device cpu"
            raise ConfigError(what, hint=hint)
        return f"cuda:{here.local_rank}"
    counts = {"cpu": 1, "cuda": num_gpus, "mps": int(torch.backends.mps.is_available())}
    kind, colon, index = name.partition(":")
    if kind not in counts or (colon and not index.isdecimal()):
        raise ConfigError(f"no device is called {name!r}", hint="choose auto, cpu, cuda or mps")
    if counts[kind] <= int(index or 0):
        # not auto: a run that is resumed takes it for the device that it began with
        hint = "use --device cpu or cuda" if num_gpus else "use --device cpu"
        raise ConfigError(f"this machine has no {name} device", hint=hint)
    return kind if kind == "cpu" else name


def set_threads(num: int | None) -> int:
    """Set how many CPU threads torch and NumPy use, and return that number.

    None keeps torch's choice, which NumPy's products then follow: left alone, they would use every
    core, and wait for each other on a core that another program has. Several processes on one
    machine then share its cores.
    """
    num_processes = runtime.place().local_size
    if num is None and num_processes > 1:
        num = min(torch.get_num_threads(), share_of_cores(num_processes))
    if num is not None:
        if not 1 <= num <= MAX_THREADS:
            bound = "at least 1" if num < 1 else f"at most {MAX_THREADS}"
            what = f"threads is {num}, but must be {bound}"
            raise ConfigError(what, hint="change --threads")
        torch.set_num_threads(num)
    threadpool_limits(torch.get_num_threads(), user_api="blas")
    return torch.get_num_threads()


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed torch on every device, each process of a run with numbers of its own."""
    stride = 0x5DEECE66D1234567  # odd and large: neighbouring seeds and ranks never meet
    torch.manual_seed((seed + rank * stride) % 2**63)


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


def run_recurrent(run: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Return what recurrent layers make of their inputs: on a GPU in float32, autocast or not.

    Under autocast cuDNN's loops are in float16 there, whatever type is asked for, and gradients
    have no room in it. On a CPU layers run as autocast has them.
    """
    device = inputs.device.type
    if device == "cpu" or not torch.is_autocast_enabled(device):
        return run(inputs)
    with torch.autocast(device, enabled=False):
        return run(inputs.float())


@cache
def has_bf16_layers() -> bool:
    """Whether torch can train recurrent layers in bfloat16 on this CPU, which is tried once.

    Its LSTM needs AVX-512, or units for bfloat16; all else that bf16 needs runs on any CPU.
    """
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(2, 3)
    try:
        with torch.enable_grad(), autocast("cpu", "bf16"):
            lstm(torch.ones(4, 1, 2))[0].float().sum().backward()
    except RuntimeError:
        return False
    return True


def resolve_precision(precision: str, device: str) -> str:
    """Return `float32` or `bf16`; `auto` means bf16 on a GPU that has it, else float32.

    A GPU that only emulates bf16 does not have it.
    `fast` means bf16 on a CPU as well, if it is one that is faster with it. On a CPU that cannot
    train in bf16, it is float32 in any case; see `describe_precision`.
    """
    if device == "cpu":
        is_wanted = precision == "bf16" or (precision == "fast" and runtime.has_bf16_products())
        return "bf16" if is_wanted and has_bf16_layers() else "float32"
    if precision not in {"auto", "fast"}:
        return precision
    has_bf16 = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "float32"


def describe_precision(precision: str, device: str, float32_layers: str = "") -> tuple[str, str]:
    """Return what products really are, and what a user should know of it, or "".

    Args:
        precision: as it was asked for.
        device: of torch.
        float32_layers: those that stay in float32, such as "gru layers".
    """
    really, notes = resolve_precision(precision, device), []
    if precision == "bf16" and device == "cpu":
        if really != "bf16":
            notes.append("this processor cannot train in bf16: everything is in float32")
        elif not runtime.has_bf16_products():
            notes.append(
                "products in bf16 are slower here than in float32: --precision float32 is faster"
            )
    layers = float32_layers or ("" if device == "cpu" else "recurrent layers")
    if really == "bf16" and layers:
        really = f"bf16, {layers} in float32"
        if device == "cpu":
            notes.append(f"in bf16, but for the {layers} in float32")
    return really, "; ".join(notes)


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
    if runtime.CPU_INFO.is_file():
        lines = runtime.CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(names, processor)
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


class Group:
    """The processes of a run, and this one's place, its rank, among them.

    Alone, nothing is sent. Otherwise all processes must call the same methods in the same order.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.has_agreed_error = False  # raised in all processes, of which the first one tells

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    def share(self, num: int) -> range:
        """Return this process's part of `num` things, as even as can be."""
        return range(num * self.rank // self.size, num * (self.rank + 1) // self.size)

    def even_share(self, num: int, name: str) -> range:
        """Return this process's part of `num` things, as large as every other's.

        Where that cannot be, a ConfigError names the setting that says how many things there are.
        """
        if num % self.size:
            what = f"{name} is {num:,}, which {self.size} processes cannot share evenly"
            raise ConfigError(what, hint=f"make it a multiple of {self.size}")
        return self.share(num)

    def any(self, flag: bool) -> bool:
        """Return whether the flag of any process is set."""
        return flag if self.size == 1 else self.totals([flag])[0] > 0

    def totals(self, values: Sequence[float]) -> list[float]:
        """Return the sums of each value over the processes, the same bits in all of them."""
        if self.size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        torch_distributed.all_reduce(summed)
        return [float(value) for value in summed]

    def gathered(self, content: Content) -> list[Content]:
        """Return what every process gave, in the order of their ranks."""
        if self.size == 1:
            return [content]
        contents: list[Any] = [None] * self.size
        torch_distributed.all_gather_object(contents, content)
        return contents

    def from_first(self, content: Content) -> Content:
        """Return what the first process gave."""
        if self.size == 1:
            return content
        contents = [content]
        torch_distributed.broadcast_object_list(contents)
        return contents[0]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Wait for all processes at the end of the block; an error of one is raised in all."""
        if self.size == 1:
            yield
            return
        raised: SeqtoolError | OSError | None = None
        try:
            yield
        except (SeqtoolError, OSError) as error:
            raised = error
        for error_of_rank in filter(None, self.gathered(raised)):
            self.has_agreed_error = True
            raise raised or error_of_rank  # its own, if it has one

    def parallel(self, module: nn.Module, loss: Loss) -> Loss:
        """Return `loss` so that its backward pass leaves the mean gradients of all processes.

        The loss is a function: the index of a batch -> its mean loss, which depends on every
        parameter of the module, and its number of items. The gradients are those of the joint batch
        if every process has as many items. The first process's weights go to all. Sparse gradients
        are not exchanged: a ConfigError says so.
        """
        if self.size == 1:
            return loss
        if any(getattr(inner, "sparse", False) for inner in module.modules()):
            what = "embedding_optimiser is sparse-adam, whose gradients processes cannot share"
            raise ConfigError(what, hint="set embedding_optimiser to same")
        step = _Step(module, loss)
        return nn.parallel.DistributedDataParallel(step, gradient_as_bucket_view=True)


ALONE = Group()


class _Step(nn.Module):
    """A loss as the forward pass of a module, which is what DistributedDataParallel takes."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, index: int) -> tuple[Tensor, int]:
        return self._loss(index)


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """Join the other processes that torchrun started, if any, and say if one of them is lost."""
    here = runtime.place()
    if here.size == 1:
        yield ALONE
        return
    if device == "mps":
        raise ConfigError("several processes cannot share mps", hint="use --device cpu")
    _meet("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    group = Group(here.rank, here.size)
    try:
        yield group
    except Interrupted:  # all stop at the same step
        raise
    except BaseException as error:
        if device.startswith("cuda"):  # NCCL would wait for those that wait for this one
            atexit.unregister(_leave)
        is_lost = isinstance(error, RuntimeError) and any(
            word in str(error).lower() for word in ("gloo", "nccl", "connection")
        )
        if not is_lost:
            runtime.let_report_errors(here.rank == 0 or not group.has_agreed_error)
            raise
        runtime.let_report_errors(here.local_rank == 0)  # one process of each machine
        what = "another process of the run was lost"
        hint = "see what ended it; the last saved state is kept: continue with --resume"
        raise TrainingError(what, hint=hint) from error


@cache
def _meet(backend: str) -> None:
    """Meet the other processes, once in the life of this one."""
    # imported while there is no group: as defaults its functions would keep one for ever
    import_module("torch.distributed.nn.functional")
    try:
        torch_distributed.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        what = f"the processes that torchrun started cannot meet: {error}"
        hint = "see that all machines reach the address that torchrun names, and use one torch"
        raise TrainingError(what.splitlines()[0], hint=hint) from error
    atexit.register(_leave)


def _leave() -> None:
    """Part from the others, and end the threads that spoke to them.

    A thread of gloo that lets go of a tensor while Python shuts down aborts the process.
    """
    gc.collect()  # replicas, which refer to the threads, are in cycles
    torch_distributed.destroy_process_group()
