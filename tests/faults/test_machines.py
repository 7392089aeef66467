"""Training over two machines by torchrun: the losses of one, and what the loss of one does.

A machine is a network namespace of its own, with an address, a working folder, and a folder that
both see; without the right to make one, it is a working folder alone. `make soak` runs it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from faults.conftest import SOAK
from faults.runs import ROOT

pytestmark = [
    pytest.mark.skipif(not SOAK, reason="starts torch a dozen times: make soak"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces of Linux"),
    pytest.mark.timeout(900),
]

RUN = (
    *("--cell", "rnn", "--hidden", "6", "--batch-size", "4", "--bptt", "5", "--dropout", "0"),
    *("--epochs", "40", "--device", "cpu", "--threads", "1"),
)
SECONDS = 300  # after which a command that waits in vain is ended


@dataclass(frozen=True)
class Machine:
    """One of two.

    Attributes:
        rank: its number.
        folder: where commands run.
        enter: what comes before a command that runs on it.
        address: of the first machine.
        interface: of the network between them.
    """

    rank: int
    folder: Path
    enter: tuple[str, ...]
    address: str
    interface: str

    def start(self, port: int, *args: str | Path) -> subprocess.Popen[str]:
        """Start seqtool by torchrun, in a group of processes of its own."""
        launcher = (
            *("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
            *("--node-rank", str(self.rank), "--master-addr", self.address),
            *("--master-port", str(port), "-m", "seqtool"),
        )
        return subprocess.Popen(
            [*self.enter, sys.executable, *launcher, *map(str, args)],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "GLOO_SOCKET_IFNAME": self.interface,
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def ip(*args: str) -> bool:
    try:
        return subprocess.run(["ip", *args], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Machine]]:
    """Two machines with a network between them."""
    folders = [tmp_path_factory.mktemp(f"machine{rank}") for rank in range(2)]
    names = [f"seqtool-{os.getpid()}-{rank}" for rank in range(2)]
    made = [name for name in names if ip("netns", "add", name)]
    pair = ("link", "add", "sq0", "netns", names[0], "type", "veth")
    if len(made) == 2 and ip(*pair, "peer", "name", "sq1", "netns", names[1]):
        for rank, name in enumerate(names):
            assert ip("-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", f"sq{rank}")
            assert ip("-n", name, "link", "set", f"sq{rank}", "up")
            assert ip("-n", name, "link", "set", "lo", "up")
        yield [
            Machine(rank, folder, ("ip", "netns", "exec", name), "10.77.0.1", f"sq{rank}")
            for rank, (folder, name) in enumerate(zip(folders, names, strict=True))
        ]
    else:
        yield [Machine(rank, folder, (), "127.0.0.1", "lo") for rank, folder in enumerate(folders)]
    for name in made:
        ip("netns", "del", name)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that both see: a text, its corpus, and the run of one process."""
    folder = tmp_path_factory.mktemp("shared")
    generator = np.random.default_rng(3)
    for name, num_lines in (("train", 200), ("valid", 20)):
        lines = (" ".join(generator.choice(list("abcdef"), size=6)) for _ in range(num_lines))
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    text = (folder / "train.txt", "--valid", folder / "valid.txt")
    alone(folder, "prepare", *text, "-o", folder / "corpus")
    alone(folder, "train-lm", folder / "corpus", "-o", folder / "one", *RUN)
    return folder


def alone(folder: Path, *args: str | Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "seqtool", *map(str, args)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def start(machines: list[Machine], *args: str | Path) -> list[subprocess.Popen[str]]:
    port = free_port()
    return [machine.start(port, *args) for machine in machines]


def with_children(pid: int) -> list[int]:
    """Return a process and all that it has started; torchrun gives its own a session of theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in with_children(int(child)))]


def losses(run: Path) -> list[float]:
    """Return the mean losses of the epochs that are logged."""
    path = run / "log.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["loss"] for event in events if event["event"] == "epoch"]


def test_two_machines_train_as_one_process(machines: list[Machine], shared: Path) -> None:
    started = start(machines, "train-lm", shared / "corpus", "-o", shared / "two", *RUN)
    told = [process.communicate(timeout=SECONDS)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert "with 1 thread in each of 2 processes" in told[0]
    expected = losses(shared / "one")
    assert len(expected) == 40
    np.testing.assert_allclose(losses(shared / "two"), expected, rtol=1e-5)
    assert list(machines[1].folder.iterdir()) == []  # only the first one writes
    assert "torchrun --nnodes 2 --nproc-per-node 1" in (shared / "two" / "README.md").read_text()


@pytest.mark.parametrize("lost", [0, 1])
def test_where_a_machine_is_lost_both_resume(
    machines: list[Machine], shared: Path, lost: int
) -> None:
    run = shared / f"lost{lost}"
    started = start(machines, "train-lm", shared / "corpus", "-o", run, *RUN)
    end = time.monotonic() + SECONDS
    while len(losses(run)) < 3:
        assert time.monotonic() < end
        assert all(process.poll() is None for process in started)
        time.sleep(0.01)
    for pid in with_children(started[lost].pid):
        os.kill(pid, signal.SIGKILL)
    _, told = started[1 - lost].communicate(timeout=SECONDS)
    started[lost].communicate()
    assert started[1 - lost].returncode == 1
    found = re.findall(r"^(?:error|hint): .*", told, re.MULTILINE)
    assert found[0] == "error: another process of the run was lost"
    assert found[1].endswith("the last saved state is kept: continue with --resume")
    assert not (run / "model.json").is_file()
    resumed = start(machines, "train-lm", "-o", run, "--resume")
    told_again = [process.communicate(timeout=SECONDS)[1] for process in resumed]
    assert [process.returncode for process in resumed] == [0, 0], told_again
    # epochs after the last saved state are logged once more
    np.testing.assert_allclose(losses(run)[-1], losses(shared / "one")[-1], rtol=1e-5)
