"""Answers of the command line, kept so that a change of its insides can be held against them.

    python -m goldens.goldens record    run all of commands.txt, and write answers.json
    python -m goldens.goldens compare   run them again, and print what differs (exit code 1)

What counts is the exit code, stdout, and the last lines of stderr. Seconds and speeds are left out.
Numbers may differ by a thousandth part, as they do between processors.
"""

from __future__ import annotations

import difflib
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = Path(__file__).with_name("commands.txt")
ANSWERS = Path(__file__).with_name("answers.json")
STDERR_LINES = 3
HEAD, TAIL, WIDTH = 30, 10, 400  # of a long output: lines at both ends, and of a line characters
TOLERANCE = 1e-3

# what no two runs, or no two machines, share
_VARYING = (
    (re.compile(r"[\d.,]+ ?(?:s|seconds|minutes?|min|MB)\b"), "TIME"),
    (re.compile(r'"stages": {[^}]*}'), '"stages": TIME'),
    (re.compile(r"(train_seconds|\w+_per_second) +[\d.]+"), r"\1 TIME"),
    (re.compile(r"[\d.,]+ (\w+)(?: per second|/s)"), r"SPEED \1"),
    (re.compile(r'("\w*(?:seconds|second|share|memory\w*)": )[\d.e+-]+'), r"\1TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|\+00:00)?)?"), "DATE"),
    (re.compile(r'("(?:processor|cores|threads|torch|numpy|python|seqtool)": )"[^"]*"'), r"\1HERE"),
    (re.compile(r"\bsha256[:\w ]*|\b[0-9a-f]{64}\b"), "SUM"),
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def command_lines() -> list[str]:
    """Return the command lines, in order."""
    lines = COMMANDS.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def make_inputs(folder: Path) -> None:
    """Write the small files that the commands name."""
    english, korean = ROOT / "data" / "en", ROOT / "data" / "ko"

    def write(name: str, lines: list[str]) -> None:
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")

    def head(path: Path, num: int, start: int = 0) -> list[str]:
        return path.read_text("utf-8").splitlines()[start : start + num]

    def trees(text: str, num: int, start: int = 0) -> str:
        return "".join(f"{block}\n\n" for block in text.split("\n\n")[start : start + num])

    write("train.txt", head(english / "train.txt", 2000))
    write("valid.txt", head(english / "valid.txt", 200))
    write("test.txt", head(english / "test.txt", 200))
    write("ko.txt", head(korean / "test.txt", 50))
    write("pairs.tsv", head(english / "pairs.tsv", 40))
    write("lexicon.txt", sorted(set(" ".join(head(english / "train.txt", 100)).split())))
    write("sentence.txt", ["the old dog sleeps .", "a zebra barks"])
    write("empty.txt", [])
    gold = gzip.decompress((english / "train.conllu.gz").read_bytes()).decode("utf-8")
    held_out = (english / "test.conllu").read_text("utf-8")
    texts = {
        "train.conllu": trees(gold, 400),
        "dev.conllu": trees((english / "valid.conllu").read_text("utf-8"), 60),
        "test.conllu": trees(held_out, 60),
        "sentence.conllu": trees(held_out, 2),
    }
    lines = trees(held_out, 4, start=60).splitlines()
    cells = [line.split("\t") for line in lines]
    bare = ["\t".join((*c[:2], *"_" * 8)) if len(c) == 10 else c[0] for c in cells]
    texts["other.conllu"] = "\n".join(bare) + "\n\n"
    texts["bad.conllu"] = (
        texts["sentence.conllu"].replace("\t1\t", "\t77\t").replace("\t0\t", "\t9\t")
    )
    named = (line.split("\t") for line in texts["train.conllu"].splitlines())
    texts["names.conllu"] = "\n".join(
        "\t".join((*c[:9], f"NER={'B-N' if c[3] == 'NOUN' else 'O'}")) if len(c) == 10 else c[0]
        for c in named
    )
    texts["names.conllu"] += "\n\n"
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    write("raw.txt", [" ".join(head(english / "test.txt", 4, start=60))])
    rows = ["text\tlabel"]
    for line in head(english / "train.txt", 300):
        rows.append(f"{line}\t{'long' if len(line.split()) > 8 else 'short'}")
    write("opinions.tsv", rows)
    write("opinions.txt", head(english / "test.txt", 5))


def run(line: str, folder: Path) -> dict[str, Any]:
    """Run a command line in this folder; return its code, stdout and the end of stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"}
    process = subprocess.run(
        [sys.executable, "-m", "seqtool", *_words(line)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=300,
    )
    errors = process.stderr.decode("utf-8").splitlines()
    return {
        "code": process.returncode,
        "stdout": _ends(_shared(process.stdout.decode("utf-8"), folder)),
        "stderr": _shared("\n".join(errors[-STDERR_LINES:]), folder),
    }


def _ends(text: str) -> str:
    """Return both ends of a long text, and how many lines it has."""
    lines = [line[:WIDTH] for line in text.splitlines()]
    if len(lines) > HEAD + TAIL:
        lines[HEAD:-TAIL] = [f"... {len(lines)} lines ..."]
    return "\n".join(lines)


def _words(line: str) -> list[str]:
    return [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)]


def _shared(text: str, folder: Path) -> str:
    """Return a text without what varies from run to run."""
    text = text.replace(str(folder), "HERE").replace(str(ROOT), "SEQTOOL")
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def same(first: str, second: str) -> bool:
    """Return whether two texts are equal but for the last digits of numbers."""
    if first == second:
        return True
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1e-3) for a, b in numbers)


def main() -> int:
    """Record or compare."""
    wanted = sys.argv[1:] or ["compare"]
    answers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        for line in command_lines():
            key, count = line, 1
            while key in answers:
                key, count = f"{line} #{count + 1}", count + 1
            answers[key] = run(line, folder)
            print(answers[key]["code"], key, flush=True)
    if wanted == ["record"]:
        ANSWERS.write_text(json.dumps(answers, indent=0, ensure_ascii=False) + "\n", "utf-8")
        return 0
    before = json.loads(ANSWERS.read_text("utf-8"))
    differing = 0
    for line in sorted(before.keys() | answers.keys()):
        old, new = before.get(line, {}), answers.get(line, {})
        parts = [
            p for p in ("code", "stdout", "stderr") if not same(f"{old.get(p)}", f"{new.get(p)}")
        ]
        differing += bool(parts)
        for part in parts:
            texts = (f"{each.get(part)}".splitlines() for each in (old, new))
            print(
                "\n".join((f"\n== {line}: {part}", *difflib.unified_diff(*texts, lineterm="", n=0)))
            )
    print(f"{len(answers)} command lines, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
