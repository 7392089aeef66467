"""Compiled functions, and where their machine code is kept."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from numba import types

import seqtool
from seqtool.core.jit import compiled

NUMBERS = np.array([10, 20, 30])


@compiled(types.int64(types.int64[::1], types.int64))
def element(numbers, index):  # type: ignore[no-untyped-def]
    """Return an element."""
    return numbers[index]


@compiled(types.float64(types.int64[::1]))
def half_of_first(numbers):  # type: ignore[no-untyped-def]
    return element(numbers, 0) / 2


@compiled(types.void(types.uint8[::1]))
def wait(flags):  # type: ignore[no-untyped-def]
    while flags[0] == 0:
        np.empty(1, np.int64)  # a call, after which memory is read anew


def test_functions_are_called_from_python_and_from_each_other() -> None:
    assert element(NUMBERS, 1) == 20
    assert half_of_first(NUMBERS) == 5.0
    assert element.__doc__ == "Return an element."


def test_other_threads_run_meanwhile() -> None:
    wait(np.ones(1, np.uint8))
    flags = np.zeros(1, np.uint8)
    thread = threading.Thread(target=wait, args=(flags,))
    thread.start()
    flags[0] = 1
    thread.join(60)
    assert not thread.is_alive()


SCRIPT = """
import sys
from seqtool.core.string_table import StringTable
print(len(StringTable(["a", "b", "a"])))
"""


def copy_package(folder: Path) -> Path:
    """Return a folder with a copy of the package that was not run yet."""
    ignored = shutil.ignore_patterns("__pycache__", "manual")
    shutil.copytree(Path(seqtool.__file__).parent, folder / "package/seqtool", ignore=ignored)
    return folder / "package"


def run(home: Path, package: Path) -> tuple[str, str]:
    """Return the output of a script that calls a compiled function, with a home of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def test_code_is_kept_for_files_as_they_are(tmp_path: Path) -> None:
    """A change in one file of compiled functions makes all of them anew: others may call it."""
    package, home = copy_package(tmp_path), tmp_path / "home"
    for num_folders in (1, 1, 2):
        if num_folders == 2:
            path = package / "seqtool/text/words.py"
            path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        assert run(home, package) == ("2", "")
        folders = list((home / "seqtool").iterdir())
        assert len(folders) == num_folders
        assert all(list(folder.rglob("*.nbc")) for folder in folders)


def test_without_a_place_to_keep_code_a_line_says_so(tmp_path: Path) -> None:
    package = copy_package(tmp_path)
    (package / "seqtool/core/__pycache__").write_text("no folder")
    output, said = run(Path(os.devnull) / "home", package)
    assert output == "2"
    assert said.startswith("note: compiled code cannot be kept")


def test_named_tuples_of_one_layout_have_names_of_their_own() -> None:
    """Numba takes two classes for one where name and types of the items are the same."""
    classes: dict[str, set[type]] = {}
    for module in pkgutil.walk_packages(seqtool.__path__, "seqtool."):
        if module.name.startswith(("seqtool.cli", "seqtool.spark", "seqtool.__main__")):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, types.BaseNamedTuple):
                classes.setdefault(value.name, set()).add(value.instance_class)
    assert len(classes) > 10
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}
