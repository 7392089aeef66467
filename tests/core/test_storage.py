from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from crashes import deaths
from safetensors.numpy import save_file

from seqtool.core import storage
from seqtool.core.errors import OutputError
from seqtool.core.storage import (
    atomic_directory,
    atomic_file,
    drop_kept,
    present,
    recover,
    replacing,
    temporary_sibling,
    versions,
    writing,
)

FILES = {"a.txt": "first", "b.txt": "second", "deep/c.txt": "third"}


def write(path: Path, version: str) -> None:
    with atomic_directory(path) as directory:
        (directory / "deep").mkdir()
        for name, text in FILES.items():
            (directory / name).write_text(f"{text} {version}")


def read(path: Path) -> str:
    """Return the version of a directory, having seen that it is whole."""
    found = {
        file.relative_to(path).as_posix()
        for file in path.rglob("*")
        if file.is_file()
        and file.name != storage.RECORD
        and not storage.is_leftover(file.relative_to(path).parts[0])
    }
    assert found == set(FILES)
    versions = set()
    for name, text in FILES.items():
        content = (path / name).read_text()
        assert content.startswith(f"{text} ")
        versions.add(content.removeprefix(f"{text} "))
    assert len(versions) == 1
    return versions.pop()


def names(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def test_a_directory_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "made" / "모델 one"
    write(path, "old")
    assert read(path) == "old"
    write(path, "new")
    assert read(path) == "new"
    assert names(path.parent) == ["모델 one"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    write(tmp_path / "x", "old")

    def fail(path: Path) -> None:
        with atomic_directory(path) as directory:
            (directory / "half").write_text("half")
            raise error

    for name in ("x", "y"):
        with pytest.raises(error):
            fail(tmp_path / name)
    assert read(tmp_path / "x") == "old"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_process_that_dies_anywhere_leaves_the_old_or_the_new(
    tmp_path: Path, exists: bool
) -> None:
    path = tmp_path / "run" / "x"
    path.parent.mkdir()
    if exists:
        write(path, "old")
    seen, number = set(), 0
    for folder in deaths(path.parent, lambda: write(path, "new")):
        number += 1
        left = present(folder / "x")  # what a reader sees
        seen.add(read(left) if left.exists() else "nothing")
        write(folder / "x", "newest")  # the next one cleans up
        assert names(folder) == ["x"]
        assert read(folder / "x") == "newest"
    assert number > 10
    assert seen == {"old" if exists else "nothing", "new"}


def test_two_do_not_write_to_one_directory(tmp_path: Path) -> None:
    path = tmp_path / "made" / "x"
    with writing(path):
        with pytest.raises(OutputError, match="another process is writing there"), writing(path):
            pass
        assert names(path.parent) == [".x.lock"]
    assert names(tmp_path) == []  # nothing was made, so no directory is


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from seqtool.core.storage import writing\n"
        "with writing(Path(sys.argv[1])):\n    os.kill(os.getpid(), 9)\n"
    )
    for link in ("x", "y"):  # a link leads to the same directory
        (tmp_path / "x").mkdir(exist_ok=True)
        (tmp_path / "y").unlink(missing_ok=True)
        (tmp_path / "y").symlink_to("x")
        subprocess.run([sys.executable, "-c", script, str(tmp_path / link)], check=False)
        assert names(tmp_path) == [".x.lock", "x", "y"]
        with writing(tmp_path / "x"), pytest.raises(OutputError), writing(tmp_path / "y"):
            pass
        assert names(tmp_path) == ["x", "y"]


def test_no_other_module_renames_what_it_writes() -> None:
    package = Path(storage.__file__).parents[1]
    pattern = re.compile(r"os\.(replace|rename)\(|\.rename\(|NamedTemporaryFile|mkstemp|\.tmp\b")
    renaming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    }
    # those of Spark name files where its workers wrote them, maybe on other machines
    assert renaming == {"core/storage.py", "spark/files.py"}


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with atomic_directory(tmp_path / "x") as directory:
            # safetensors makes its files for their owner alone
            save_file({"a": np.zeros(2)}, directory / "a.safetensors")
            (directory / "b").write_text("b")
    finally:
        os.umask(before)
    for name in ("a.safetensors", "b"):
        mode = stat.S_IMODE((tmp_path / "x" / name).stat().st_mode)
        assert mode == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_what_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    write(folder, "old")
    file.chmod(mode)
    folder.chmod(mode | 0o700)
    for name in ("file", "folder"):
        (tmp_path / f"link-{name}").symlink_to(name)
    storage.replace_text(tmp_path / "link-file", "new")
    write(tmp_path / "link-folder", "new")
    assert (file.read_text(), read(folder)) == ("new", "new")
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert stat.S_IMODE(folder.stat().st_mode) == mode | 0o700
    assert all((tmp_path / f"link-{name}").is_symlink() for name in ("file", "folder"))


def test_two_writers_of_a_file_leave_what_one_of_them_wrote(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    content = (b"child" if child == 0 else b"parent") * 1000
    for _ in range(20):
        with atomic_file(path) as stream:
            for start in range(0, len(content), 100):
                stream.write(content[start : start + 100])
                stream.flush()
        assert path.read_bytes() in (b"child" * 1000, b"parent" * 1000)
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert names(tmp_path) == ["x"]


def test_a_text_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "t"
    path.write_text("old")
    left = [
        (folder / "t").read_text()
        for folder in deaths(path.parent, partial(storage.replace_text, path, "new"))
    ]
    assert set(left) == {"old", "new"}
    assert left == sorted(left, reverse=True)
    assert path.read_text() == "new"
    with pytest.raises(IsADirectoryError):
        storage.replace_text(path.parent, "new")
    assert names(path.parent) == ["t"]


def fill(path: Path, version: str, error: type[BaseException] | None = None) -> None:
    """Begin a run in a directory with `replacing`, and perhaps fail then."""
    with replacing(path):
        assert names(path) == []
        (path / "deep").mkdir()
        for name, text in FILES.items():
            (path / name).write_text(f"{text} {version}")
        if error is not None:
            raise error
        (path / storage.RECORD).write_text(f"run {version}")


def test_what_is_replaced_is_kept_until_the_new_content_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x"
    with pytest.raises(KeyboardInterrupt):
        fill(path, "first", KeyboardInterrupt)
    assert names(path.parent) == []
    fill(path, "old")
    assert versions(path) == [path]
    with pytest.raises(KeyboardInterrupt):
        fill(path, "failed", KeyboardInterrupt)
    assert read(path) == "old"
    fill(path, "unfinished")
    fill(path, "new")  # over a run that came to nothing
    assert [read(version) for version in versions(path)] == ["new", "old"]
    drop_kept(path)
    assert read(path) == "new"
    assert names(path.parent) == ["x"]


@pytest.mark.parametrize("before", [[], ["old"], ["old", "unfinished"]], ids=len)
def test_a_process_that_dies_while_it_replaces_leaves_all_of_the_old(
    tmp_path: Path, before: list[str]
) -> None:
    """Readers see it at any moment, and the next writer puts it back or goes on from there."""
    whole = tmp_path / "run" / "x"
    whole.parent.mkdir(parents=True)
    for version in before:
        fill(whole, version)
        if version == "old":
            drop_kept(whole)
    number, seen = 0, []
    for folder in deaths(whole.parent, lambda: fill(whole, "new")):
        number += 1
        path = folder / "x"
        kept = [version for version in versions(path) if (version / "a.txt").exists()]
        if before:
            assert read(kept[-1]) == "old"  # what was whole stays whole
        recover(path)
        if path.exists() and names(path):
            seen.append(read(path))
        fill(path, "newest")
        drop_kept(path)
        assert read(path) == "newest"
        assert names(folder) == ["x"]
    assert number > 8
    assert seen[-1] == "new"
    assert set(seen) == {*before, "new"}


def test_replacing_follows_links_and_keeps_their_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "large disk" / "x"
    write(real, "old")
    (tmp_path / "link").symlink_to(real)
    (real / "linked").symlink_to(tmp_path)
    fill(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert [read(version) for version in versions(real)[1:]] == ["old"]
    drop_kept(real)
    monkeypatch.chdir(real)
    with pytest.raises(OutputError, match="current directory"):
        fill(Path(), "newest")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    fill(Path(), "newest")
    assert read(Path()) == "newest"
    assert names(tmp_path) == ["empty", "large disk", "link"]


def test_what_was_set_aside_is_found_and_put_back(tmp_path: Path) -> None:
    write(tmp_path / ".x.old", "old")
    (tmp_path / ".x.new-1-0a").mkdir()
    assert present(tmp_path / "x") == tmp_path / ".x.old"
    assert present(tmp_path / "x" / "a.txt") == tmp_path / ".x.old" / "a.txt"
    assert present(tmp_path / "z" / "a.txt") == tmp_path / "z" / "a.txt"
    with temporary_sibling(tmp_path / "x") as running:  # that of a living process stays
        recover(tmp_path / "x")
        assert read(tmp_path / "x") == "old"
        assert names(tmp_path) == [running.name, "x"]
    assert names(tmp_path) == ["x"]


def test_a_full_disk_names_the_output(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    write(tmp_path / "x", "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for make in (
        lambda path: (path / "a").write_bytes(bytes(100_000)),
        lambda path: save_file({"a": np.zeros(100_000)}, path / "a.safetensors"),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            with (
                pytest.raises(OSError, match="File too large") as caught,
                atomic_directory(tmp_path / "x") as directory,
            ):
                make(directory)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.filename == str(tmp_path / "x")
        assert read(tmp_path / "x") == "old"
        assert names(tmp_path) == ["x"]


def test_any_change_breaks_the_seal(tmp_path: Path) -> None:
    path, content = tmp_path / "x", {"a": [1.5, None, {"름": True}], "b": -3}
    storage.write_json(path, storage.sealed(content))
    assert storage.read_sealed(path) == content
    whole = path.read_bytes()
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        with pytest.raises((ValueError, KeyError)):
            storage.read_sealed(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"[]", "holds no JSON object"),
        (b"\xff{}", "utf-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\\uDFFF", "b": "\\ud83d\\ude00"}', "surrogates not allowed"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "digits"),
        (b'{"a": "' + b"x" * 1000 + b'"}', "1,009 bytes, where at most 1,000 are read"),
    ],
)
def test_hostile_json_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        storage.read_object(path, 1000 if len(content) == 1009 else storage.MAX_OBJECT)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_only_plain_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    for read in (storage.read_object, storage.read_file, storage.sum_of):
        with pytest.raises(IsADirectoryError if kind == "directory" else ValueError) as caught:
            read(path)
        assert kind == "directory" or "no plain file" in str(caught.value)
