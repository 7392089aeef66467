"""What a run trains on: device, threads, seed, precision, and several processes (torchrun).

Processes that train one model all hold the weights, and each reads its own streams. What they agree
on (gradients, losses, when to stop) goes through torch.distributed: between CPUs by gloo, gradients
between GPUs by NCCL.
"""

from __future__ import annotations

import gc
import itertools
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch import distributed as torch_distributed

from seqtool.core import runtime
from seqtool.core.errors import ConfigError, Interrupted, SeqtoolError, TrainingError, counted
from seqtool.core.processes import share_of_cores

if TYPE_CHECKING:  # a torch may be built without it
    from torch.distributed.distributed_c10d import Store

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
    if name == "auto":  # mps is slower than the CPU for small recurrent steps: only on request
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif here.size > 1 and name not in ("cpu", "cuda"):
        what = f"{here.size} processes cannot all train on {name}"
        raise ConfigError(what, hint="use --device cpu or cuda")
    if name == "cuda" and here.size > 1:
        num_gpus = torch.cuda.device_count()
        if num_gpus < here.local_size:
            what = f"this machine has {counted(num_gpus, 'GPU')} for {here.local_size} processes"
            hint = "start one per GPU (--nproc-per-node), or use --device cpu"
            raise ConfigError(what, hint=hint)
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
        # not auto: a run that is resumed takes it for the device that it began with
        hint = "use --device cpu or cuda" if counts["cuda"] else "use --device cpu"
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
    train in bf16, it is float32 in any case; see `precision_note`.
    """
    if device == "cpu":
        is_wanted = precision == "bf16" or (precision == "fast" and runtime.has_bf16_products())
        return "bf16" if is_wanted and has_bf16_layers() else "float32"
    if precision not in {"auto", "fast"}:
        return precision
    has_bf16 = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_bf16 else "float32"


def precision_note(precision: str, device: str) -> str:
    """Return what a user should know who asks for products in bfloat16 on this CPU; "" elsewhere.

    Args:
        precision: as it was asked for.
        device: of torch.
    """
    if precision != "bf16" or device != "cpu":
        return ""
    if not has_bf16_layers():
        return "this processor cannot train in bf16: everything is in float32"
    if not runtime.has_bf16_products():
        return "products in bf16 are slower here than in float32: --precision float32 is faster"
    return ""


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
        self._replicas: list[Loss] = []

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
        if every process has as many items. The first process's weights go to all. GPUs cannot
        exchange sparse gradients: a ConfigError says so.
        """
        if self.size == 1:
            return loss
        step = _Step(module, loss)
        sparse = [
            name
            for name, inner in step.named_modules()
            if getattr(inner, "sparse", False) and isinstance(inner.weight, nn.Parameter)
        ]
        for name in sparse:
            weight: Any = step.get_parameter(f"{name}.weight")
            if weight.device.type != "cpu":
                what = "embedding_optimiser is sparse-adam, whose gradients several GPUs"
                hint = "set embedding_optimiser to same"
                raise ConfigError(f"{what} cannot share", hint=hint)
            weight.register_post_accumulate_grad_hook(self._average_sparse)
        ignored = [f"{name}.weight" for name in sparse]
        replicated: Any = nn.parallel.DistributedDataParallel
        replicated._set_params_and_buffers_to_ignore_for_model(step, ignored)
        place = len(self._replicas)
        self._replicas.append(replicated(step, gradient_as_bucket_view=True))
        return lambda index: self._replicas[place](index)  # `leave` lets go of all replicas

    def leave(self) -> None:
        """Part from the others, and end the threads that spoke to them.

        A thread of gloo that lets go of a tensor while Python shuts down aborts the process; torch
        ends the threads only with the last thing that refers to them, which the replicas do.
        """
        self._replicas.clear()
        gc.collect()  # a replica is in cycles
        torch_distributed.destroy_process_group()

    def _average_sparse(self, parameter: Tensor) -> None:
        """Make a sparse gradient the mean of those of all processes."""
        assert parameter.grad is not None
        summed = parameter.grad.coalesce()
        torch_distributed.all_reduce(summed)
        parameter.grad = summed / self.size


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
    """Join the other processes that torchrun started, if any, and leave them in the end."""
    here = runtime.place()
    if here.size == 1:
        yield ALONE
        return
    if device == "mps":
        raise ConfigError("several processes cannot share mps", hint="use --device cpu")
    if torch_distributed.is_initialized():
        hint = "let train_lm join the processes itself"
        raise ConfigError("torch.distributed is in use already", hint=hint)
    from torch.distributed.distributed_c10d import PrefixStore

    # imported while there is no group: as defaults its functions would keep one for ever
    import_module("torch.distributed.nn.functional")

    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    group = Group(here.rank, here.size)
    try:
        # what an earlier group has left in the store is not read again
        store = PrefixStore(f"seqtool/{next(_joinings)}", _meeting_place())
        torch_distributed.init_process_group(
            backend, store=store, rank=here.rank, world_size=here.size, timeout=PATIENCE
        )
    except (RuntimeError, ValueError) as error:
        what = f"process {here.rank} cannot meet the other {here.size - 1}"
        hint = "see that all machines reach the address that torchrun names, and use one torch"
        raise TrainingError(what, hint=hint) from error
    is_whole = True
    try:
        yield group
    except Interrupted:  # all stop at the same step
        raise
    except BaseException as error:
        is_whole = False
        if not isinstance(error, RuntimeError | torch_distributed.DistError) or not any(
            word in str(error).lower() for word in ("gloo", "nccl", "connection")
        ):
            runtime.let_report_errors(here.rank == 0 or not group.has_agreed_error)
            raise
        runtime.let_report_errors(here.local_rank == 0)  # one process of each machine
        what = "another process of the run was lost"
        hint = "see what ended it; the last saved state is kept: continue with --resume"
        raise TrainingError(what, hint=hint) from error
    finally:
        if is_whole or backend == "gloo":  # NCCL would wait for those that wait for this one
            group.leave()


_joinings = itertools.count()


@cache
def _meeting_place() -> Store:
    """Return the store at the address that torchrun names, which one process keeps for all."""
    from torch.distributed.rendezvous import rendezvous

    store: Store = next(rendezvous("env://", timeout=PATIENCE))[0]
    return store
