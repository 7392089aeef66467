"""What a stranger may do to the files that seqtool reads, one function for each way."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqtool.core import storage

BIG = 10**400
# an honest value is replaced by each of these
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 10**6, 2**31, 2**63, -(2**63), BIG, 1e308, -1e-300),
    *(float("nan"), float("inf"), "", "x" * 10_000),
    *("\x1b]0;owned\x07", "\x00", "\ud800", "⽂" * 50),
    *("../../../etc/passwd", "/etc/passwd", ".", "~", "nan", "1e3", [], {}, [[]], [None], {"": {}}),
    *([0] * 1000, ["a", "a"], {"a": 1}, [1, "a", None], [BIG]),
)
DEEP = 100_000


def damage(content: bytes, chosen: random.Random) -> bytes:
    """Return the bytes of a file with a random piece changed, cut, doubled, swapped or added."""
    if not content:
        return os.urandom(1)
    at, size = chosen.randrange(len(content)), chosen.choice((1, 1, 2, 8, 64, 512))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[:at],
        lambda: content[at:],
        lambda: content[:at] + content[at + size :],
        lambda: content[:at] + chosen.randbytes(size) + content[at + size :],
        lambda: (
            content[:at] + bytes([content[at] ^ (1 << chosen.randrange(8))]) + content[at + 1 :]
        ),
        lambda: content[:at] + content[at : at + size] * 2 + content[at + size :],
        lambda: content + chosen.randbytes(size),
        lambda: content[:at] + bytes(size) + content[at + size :],
        lambda: content[:at] + b"\xff" * size + content[at + size :],
        lambda: b"",
        lambda: b"\x00" * len(content),
    )
    return chosen.choice(ways)()


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside JSON; of a long list, to its ends."""
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for index in {0, 1, len(value) - 1} & set(range(len(value))):
            yield from places(value[index], (*at, index))


def edited_json(content: dict[str, Any], chosen: random.Random) -> tuple[dict[str, Any], str]:
    """Return JSON with one value replaced, removed or added, and what was done."""
    result = copy.deepcopy(content)
    way = chosen.choice(list(places(result)))
    holder: Any = reduce(getitem, way[:-1], result)
    what = chosen.choice(("value", "value", "value", "value", "remove", "swap", "add"))
    if what == "remove":
        del holder[way[-1]]
        return result, f"without {way}"
    value = chosen.choice(VALUES)
    if what == "add" and isinstance(holder, dict):
        way = (*way[:-1], chosen.choice(("", "zzz", "\x1b[31m", "__class__", "\ud800")))
    elif what == "swap":
        value = copy.deepcopy(reduce(getitem, chosen.choice(list(places(content))), content))
    holder[way[-1]] = value
    return result, f"{way} = {str(value)[:40]!r}"


def write_json(path: Path, content: Any, *, seal: bool = False) -> None:
    """Write JSON as any program could, also such as has no UTF-8; sealed if possible."""
    if seal:
        content.pop(storage.SEAL, None)
        content = storage.sealed(content)
    # as seqtool lays it out, which a seal is also of
    path.write_bytes(storage.to_json(content).encode("utf-8", "surrogatepass"))


def reseal(model: Path) -> None:
    """Write sums into a model's header, or a run's state, that are true of what is there now."""
    if (state := model / "state.json").is_file():
        content = json.loads(state.read_bytes())
        content["tensors"] = storage.sum_of(model / "state.safetensors")
        write_json(state, content, seal=True)
        return
    path = model / "model.json"
    header = json.loads(path.read_bytes())
    for name in header["files"]:
        if (model / name).is_file():
            header["files"][name] = {
                "bytes": (model / name).stat().st_size,
                "sha256": storage.sum_of(model / name),
            }
    write_json(path, header, seal=True)


DTYPES = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
DTYPES |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}
FLOATS = (0.0, -0.0, -1.0, 1e-45, 1e6, 3e38, -3e38, float("nan"), float("inf"), -float("inf"))


def edited_numbers(array: npt.NDArray[Any], chosen: random.Random) -> tuple[Any, str]:
    """Return a vector with some or all of its numbers replaced, moved, added or left out."""
    what = chosen.choice(("one", "one", "some", "end", "all", "shuffle", "reverse", "cut", "more"))
    if what == "cut":
        return array[: chosen.choice((0, 1, len(array) // 2, max(0, len(array) - 1)))], what
    if what == "more":
        return np.concatenate((array, array[-chosen.choice((1, len(array))) :])), what
    if not len(array):
        return array, "nothing"
    result = array.copy()
    if what == "reverse":
        return result[::-1], what
    if what == "shuffle":
        return result[chosen.sample(range(len(result)), len(result))], what
    value: Any = chosen.choice(FLOATS)
    if result.dtype.kind in "iu":
        limits = np.iinfo(result.dtype)
        values = (0, 1, -1, -62, 3, 40, 64, len(array), 10**6, limits.min, limits.max)
        value = min(max(chosen.choice(values), limits.min), limits.max)
    where: Any = {
        "one": [chosen.randrange(len(result))],
        "some": chosen.choices(range(len(result)), k=8),
        "end": [-1],
        "all": slice(None),
    }[what]
    with np.errstate(over="ignore"):
        result[where] = result.dtype.type(value)
    return result, f"{what} {value}"


def edited_safetensors(content: bytes, chosen: random.Random) -> tuple[bytes, str]:
    """Return safetensors with one to three arrays edited, renamed, removed, cast or reshaped."""
    size = struct.unpack("<Q", content[:8])[0]
    entries, told = json.loads(content[8 : 8 + size]), []
    entries.pop("__metadata__", None)
    data = {}
    for name, entry in entries.items():
        start, stop = entry.pop("data_offsets")
        data[name] = content[8 + size + start : 8 + size + stop]
    for _ in range(chosen.choice((1, 1, 2, 3))):
        name, other = chosen.choice(list(entries)), chosen.choice(list(entries))
        entry = entries[name]
        what = chosen.choice((*["numbers"] * 6, "cast", "dtype", "shape", "name", "gone", "swap"))
        dtype = np.dtype(DTYPES[entry["dtype"]])
        if what == "numbers":
            array, what = edited_numbers(np.frombuffer(data[name], dtype), chosen)
            if array.nbytes != len(data[name]):
                rest = int(np.prod(entry["shape"][1:])) or 1
                array = array[: len(array) // rest * rest]
                entry["shape"] = [len(array) // rest, *entry["shape"][1:]]
            data[name] = array.tobytes()
        elif what == "cast":
            entry["dtype"] = chosen.choice(sorted(set(DTYPES) - {"BF16"}))
            with np.errstate(all="ignore"):
                array = np.frombuffer(data[name], dtype).astype(DTYPES[entry["dtype"]])
            data[name] = array.tobytes()
        elif what == "dtype":
            widths = [key for key in DTYPES if np.dtype(DTYPES[key]).itemsize == dtype.itemsize]
            entry["dtype"] = chosen.choice(widths)
        elif what == "shape":
            shape, total = entry["shape"], int(np.prod(entry["shape"]))
            shapes = ([total], [1, total], [total, 1], [*shape[::-1]], [*shape, 1])
            entry["shape"] = chosen.choice(shapes)
        elif what == "name":
            new = chosen.choice(("x", f"{name}x", ""))
            entries[new], data[new] = entries.pop(name), data.pop(name)
        elif what == "swap":
            entries[name], entries[other] = entries[other], entries[name]
            data[name], data[other] = data[other], data[name]
        elif len(entries) > 1:
            del entries[name], data[name]
        told.append(f"{what} of {name}")
    position = 0
    for name, entry in entries.items():
        entry["data_offsets"] = [position, position := position + len(data[name])]
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(map(data.get, entries)), ", ".join(told)  # type: ignore[arg-type]


OTHERS: dict[str, Callable[[Path], object]] = {  # what is no plain file
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to zeros": lambda path: path.symlink_to("/dev/zero"),
    "missing": lambda path: None,
    "socket": lambda path: os.mknod(path, 0o140644),
}


def attack(folder: Path, chosen: random.Random) -> str:
    """Do something hostile to one file of a model or corpus, or to what it holds, and say what."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix not in (".md", ".jsonl")]
    # the record of a run matters where there is no model yet
    unread = "run.json" if (folder / "model.json").is_file() else ""
    path = chosen.choice([path for path in files if path.is_file() and path.name != unread])
    weights = [path for path in files if path.suffix == ".safetensors"]
    if weights and chosen.random() < 0.5:
        path = chosen.choice(weights)
        content, told = edited_safetensors(path.read_bytes(), chosen)
        path.write_bytes(content)
        reseal(path.parent)
        return f"{path.relative_to(folder)}: {told}"
    way, told = chosen.random(), "damaged"
    if way < 0.08:
        told = chosen.choice(list(OTHERS))
        path.unlink()
        OTHERS[told](path)
        return f"{path.relative_to(folder)}: {told}"
    if way < 0.12:  # nested too deeply for a reader that calls itself
        told = "nested"
        opening, closing = chosen.choice((("[", "]"), ('{"a":', "}")))
        path.write_text(opening * DEEP + "1" + closing * DEEP)
    elif way >= 0.3 and path.suffix == ".json":
        edited, told = edited_json(json.loads(path.read_bytes()), chosen)
        write_json(path, edited, seal=storage.SEAL in edited and chosen.random() < 0.9)
    else:
        path.write_bytes(damage(path.read_bytes(), chosen))
    if path.name not in ("model.json", "state.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            reseal(path.parent)
    return f"{path.relative_to(folder)}: {told}"
