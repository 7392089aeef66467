from __future__ import annotations

import copy
import errno
import inspect
import pickle
import re

import pytest

from seqtool.core import errors
from seqtool.core.errors import DataError, Interrupted, SeqtoolError, counted, from_os_error

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, SeqtoolError)
]


def test_message_shows_path_and_line() -> None:
    assert str(DataError("token 7 has head 31", path="a.conllu", line=118)) == (
        "a.conllu:118: token 7 has head 31"
    )
    assert str(DataError("is empty", path="a.txt")) == "a.txt: is empty"
    assert str(DataError("is empty", line=3)) == "is empty"  # a line of no file says nothing


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_copied_whole(kind: type[SeqtoolError]) -> None:
    # errors cross process borders by pickle
    error = kind("what happened", hint="next step", path="x", line=4)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert str(twin) == "x:4: what happened"
        assert twin.hint == "next step"
        assert twin.exit_code == (130 if kind is Interrupted else 1)


def test_drawn_tree_is_the_real_one() -> None:
    drawn = set(re.findall(r"\w+", str(errors.__doc__).split("Errors of this tree")[0]))
    assert {kind.__name__ for kind in KINDS} <= drawn
    assert all(kind.__base__ is SeqtoolError for kind in KINDS if kind is not SeqtoolError)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no space left on device"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "read-only file system"),
    ],
)
def test_operating_system_errors_name_file_and_next_step(code: int, words: str) -> None:
    import os

    error = from_os_error(OSError(code, os.strerror(code), "runs/lm/model.json"))
    assert str(error) == f"runs/lm/model.json: {words}"
    assert error.hint


def test_numbers_with_their_nouns() -> None:
    assert [counted(num, "step") for num in (0, 1, 2, 1000)] == [
        *("0 steps", "1 step", "2 steps", "1,000 steps"),
    ]
    assert [counted(num, "thread") for num in ("1", "2", "?")] == [
        *("1 thread", "2 threads", "? threads"),
    ]
