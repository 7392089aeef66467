"""What a stranger may do to the files that seqtool reads, one function for each way."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqtool.core import storage

BIG = 10**400
# an honest value is replaced by each of these
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 10**6, 2**31, 2**63, -(2**63), BIG, 1e308, -1e-300),
    *(
        float("nan"),
        float("inf"),
        "",
        "x" * 10_000,
        "\x1b]0;owned\x07",
        "\x00",
        "\ud800",
        "⽂" * 50,
    ),
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
    holder = result
    for step in way[:-1]:
        holder = holder[step]
    what = chosen.choice(("value", "value", "value", "value", "remove", "swap", "add"))
    if what == "remove":
        del holder[way[-1]]
        return result, f"without {way}"
    if what == "add" and isinstance(holder, dict):
        key = chosen.choice(("", "zzz", "\x1b[31m", "__class__", "\ud800"))
        holder[key] = chosen.choice(VALUES)
        return result, f"with {key!r} beside {way}"
    if what == "swap":
        other = chosen.choice(list(places(content)))
        value: Any = content
        for step in other:
            value = value[step]
        holder[way[-1]] = copy.deepcopy(value)
        return result, f"{way} holds that of {other}"
    holder[way[-1]] = value = chosen.choice(VALUES)
    return result, f"{way} = {str(value)[:40]!r}"


def write_json(path: Path, content: Any, *, seal: bool = False) -> None:
    """Write JSON as any program could, also such as has no UTF-8; sealed if possible."""
    if seal:
        content.pop(storage.SEAL, None)
        content = storage.sealed(content)
    path.write_bytes(json.dumps(content, indent=1).encode("utf-8", "surrogatepass"))


def deep_json(path: Path, chosen: random.Random) -> str:
    """Write JSON that is nested too deeply for a reader that calls itself."""
    opening, closing = chosen.choice((("[", "]"), ('{"a":', "}")))
    path.write_text(opening * DEEP + "1" + closing * DEEP)
    return "nested deeply"


def reseal(model: Path) -> None:
    """Write sums into a model's header that are true of what is there now."""
    path = model / "model.json"
    header = json.loads(path.read_bytes())
    for name in header["files"]:
        if (model / name).is_file():
            header["files"][name] = {
                "bytes": (model / name).stat().st_size,
                "sha256": storage.sum_of(model / name),
            }
    write_json(path, header, seal=True)


def edited_safetensors(content: bytes, chosen: random.Random) -> tuple[bytes, str]:
    """Return safetensors with one array renamed, removed, cast, reshaped or filled."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    name = chosen.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    start, stop = entry["data_offsets"]
    what = chosen.choice(
        ("fill", "fill", "fill", "noise", "dtype", "shape", "name", "header", "swap")
    )
    if what == "fill":
        byte = chosen.choice((b"\xff", b"\x7f", b"\x80", b"\x00", b"\x01"))
        data[start:stop] = byte * (stop - start)
    elif what == "noise":
        for _ in range(min(8, stop - start)):
            data[chosen.randrange(start, stop)] = chosen.randrange(256)
    elif what == "dtype":
        of_width = {"F32": "I32", "I32": "F32", "F64": "I64", "I64": "F64", "U8": "I8", "I8": "U8"}
        of_width |= {"U16": "F16", "F16": "I16", "U32": "F32", "U64": "F64", "BF16": "F16"}
        entry["dtype"] = of_width.get(entry["dtype"], "U8")
    elif what == "shape":
        shape = entry["shape"]
        total = 1
        for side in shape:
            total *= side
        entry["shape"] = chosen.choice(
            ([total], [1, total], [total, 1], [*shape[::-1]], [*shape, 1])
        )
    elif what == "name":
        header[chosen.choice(("x", f"{name}x", ""))] = header.pop(name)
    elif what == "swap":
        other = chosen.choice([key for key in header if key != "__metadata__"])
        header[name], header[other] = header[other], header[name]
    else:
        del header[name]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data), f"{what} of {name}"


def other_file(path: Path, chosen: random.Random) -> str:
    """Put something that is no plain file in the place of a file."""
    what = chosen.choice(
        ("fifo", "directory", "link to itself", "link to zeros", "missing", "socket")
    )
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "link to itself":
        path.symlink_to(path.name)
    elif what == "link to zeros":
        path.symlink_to("/dev/zero")
    elif what == "socket":
        os.mknod(path, 0o140644)
    return what


def attack(folder: Path, chosen: random.Random) -> str:
    """Do something hostile to one file of a model or corpus, and say what."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix not in (".md", ".jsonl")]
    # the record of a run matters where there is no model yet
    unread = "run.json" if (folder / "model.json").is_file() else ""
    path = chosen.choice([path for path in files if path.is_file() and path.name != unread])
    shown = path.relative_to(folder)
    way = chosen.random()
    if way < 0.08:
        return f"{shown}: {other_file(path, chosen)}"
    if way < 0.12:
        told = deep_json(path, chosen)
    elif way < 0.3:
        path.write_bytes(damage(path.read_bytes(), chosen))
        told = "damaged"
    elif path.suffix == ".json":
        content, told = edited_json(json.loads(path.read_bytes()), chosen)
        write_json(path, content, seal=path.name == "model.json" and chosen.random() < 0.9)
    elif path.suffix == ".safetensors":
        content, told = edited_safetensors(path.read_bytes(), chosen)  # type: ignore[assignment]
        path.write_bytes(content)  # type: ignore[arg-type]
    else:
        path.write_bytes(damage(path.read_bytes(), chosen))
        told = "damaged"
    if path.name != "model.json" and (path.parent / "model.json").is_file():
        try:
            reseal(path.parent)
        except (OSError, ValueError, KeyError):
            told += ", not sealed"
    return f"{shown}: {told}"


def copy_to(source: Path, target: Path) -> Path:
    """Copy a directory of the kept version."""
    return Path(shutil.copytree(source, target, symlinks=True))
