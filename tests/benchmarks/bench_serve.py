"""Sentences per second that `seqtool serve` parses for several clients at once, and its memory.

    python tests/benchmarks/bench_serve.py --model DIR --text FILE.conllu [--seconds 600]

The server has one core, and the clients, each a thread with a connection of its own, another. Each
sends request after request: so many sentences of the treebank, as raw text, to be split, tagged and
parsed. Sentences are those of the treebank, whatever the server makes of the text. The rate is by
the clock, and by the processor's time of the server, which other programs disturb less. Memory is
what is resident. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import uvicorn
from bench_prepare import cpu_name

from seqtool.treebank.conllu import read_conllu

PARTS = 10  # of the time, after each of which a line is printed
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Client(threading.Thread):
    """Sends requests until it is to stop."""

    def __init__(self, url: str, bodies: Iterator[bytes], per_request: int) -> None:
        super().__init__(daemon=True)
        self._bodies, self._per_request = bodies, per_request
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.num_sentences = 0
        self.seconds: list[float] = []  # of each request
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            begin = time.perf_counter()
            self._connection.request("POST", "/process", next(self._bodies), FORM)
            response = self._connection.getresponse()
            answer = response.read().decode()
            assert response.status == 200, answer
            assert json.loads(answer)["result"].startswith("# newdoc")
            self.seconds.append(time.perf_counter() - begin)
            self.num_sentences += self._per_request


def processor_seconds(process: int) -> float:
    """Return what a process of Linux has had of the processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Return the memory of a process of Linux, in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure(url: str, server: int, texts: list[str], args: argparse.Namespace, num: int) -> dict:
    """Let clients send `num` sentences a request for a while, and print what came of it."""
    requests = [" ".join(texts[i : i + num]) for i in range(0, len(texts), num)]
    bodies = [
        urlencode({"data": text, "tokenizer": "", "tagger": "", "parser": ""}).encode()
        for text in requests
    ]
    clients = [
        Client(url, islice(cycle(bodies), i * len(bodies) // args.clients, None), num)
        for i in range(args.clients)
    ]
    for client in clients:
        client.start()
    memory: list[float] = []
    begin, had = time.perf_counter(), processor_seconds(server)
    last = 0, 0.0, had
    for part in range(1, PARTS + 1):
        time.sleep(max(0.0, begin + part * args.seconds / PARTS - time.perf_counter()))
        now = (
            sum(client.num_sentences for client in clients),
            time.perf_counter() - begin,
            processor_seconds(server),
        )
        done, wall, processor = (new - old for new, old in zip(now, last, strict=True))
        memory.append(resident(server))
        print(
            f"{num:>12}{now[1]:>10.0f}{done / wall:>12,.0f}{done / processor:>12,.0f}"
            f"{memory[-1]:>10.1f}",
            flush=True,
        )
        last = now
    for client in clients:
        client.stopping = True
    for client in clients:
        client.join()
    seconds = sorted(second for client in clients for second in client.seconds)
    return {
        "sentences_per_request": num,
        "sentences_per_second": round(last[0] / last[1]),
        "sentences_per_processor_second": round(last[0] / (last[2] - had)),
        "milliseconds": {
            "median": round(1000 * statistics.median(seconds), 1),
            "99%": round(1000 * seconds[int(0.99 * len(seconds))], 1),
        },
        "resident_mb": [round(memory[0], 1), round(memory[-1], 1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--per-request", default="1,10")
    parser.add_argument("--cores", default="0,1", help="of the server and of the clients")
    args = parser.parse_args()
    texts = [sentence.text for sentence in read_conllu(args.text)]
    ours, theirs = map(int, args.cores.split(","))
    os.sched_setaffinity(0, {ours})
    command = [sys.executable, "-m", "seqtool", "serve", "-m", str(args.model)]
    command += ["--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    os.sched_setaffinity(0, {theirs})
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    head = f"{'a request':>12}{'seconds':>10}{'sentences/s':>12}{'of its time':>12}{'MB':>10}"
    print(head)
    try:
        found = [
            measure(url, server.pid, texts, args, int(num)) for num in args.per_request.split(",")
        ]
    finally:
        server.terminate()
        server.wait()
    machine = {
        "processor": cpu_name(),
        "python": platform.python_version(),
        "uvicorn": uvicorn.__version__,
    }
    print()
    print(json.dumps({"benchmark": "serve", "clients": args.clients, "runs": found, **machine}))


if __name__ == "__main__":
    main()
