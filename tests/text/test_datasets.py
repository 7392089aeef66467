"""Data sets by name: from a local web server, from a folder, and from sources that fail."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from seqtool.cli.fetch import fetch as fetch_command
from seqtool.core.errors import ConfigError, DataError, DownloadError, OutputError
from seqtool.text import datasets
from seqtool.text.datasets import DATASETS, Dataset, Remote, SplitFile, describe, fetch

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TEXTS = {"train": b"the old man\n" * 50, "valid": b"a new day\n" * 5, "test": b"an end\n"}
LOCAL_ONLY = {split: TEXTS[split] for split in ("train", "valid")}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class SilentHandler(SimpleHTTPRequestHandler):
    """Serves a folder and records what was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@dataclasses.dataclass
class Site:
    """A folder that is served, and what was asked of it."""

    url: str
    folder: Path
    asked: list[str]

    def remote(self, name: str, content: bytes, members: dict[str, str]) -> Remote:
        """Publish a file and return its entry in a table of sources."""
        (self.folder / name).write_bytes(content)
        return Remote(f"{self.url}/{name}", len(content), sha256(content), members)

    def zip(self, name: str, content: bytes | None = None) -> tuple[Remote, ...]:
        """Publish a zip of the texts (or other content) and return it as a source."""
        members = {split: f"toy/{split}.tokens" for split in TEXTS}
        whole = zip_of({members[split]: text for split, text in TEXTS.items()})
        return (self.remote(name, whole if content is None else content, members),)

    def plain(self) -> tuple[Remote, ...]:
        """Publish the texts one by one and return them as a source."""
        return tuple(self.remote(f"{s}.txt", text, {s: ""}) for s, text in TEXTS.items())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    folder = tmp_path / "site"
    folder.mkdir()
    asked: list[str] = []
    handler = type("BoundHandler", (SilentHandler,), {"asked": asked})
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield Site(f"http://127.0.0.1:{server.server_port}", folder, asked)
    server.shutdown()
    server.server_close()


def publish(monkeypatch: pytest.MonkeyPatch, *sources: tuple[Remote, ...]) -> None:
    """Make `toy` the only data set, with these sources."""
    splits = {split: SplitFile(len(text), sha256(text)) for split, text in TEXTS.items()}
    toy = Dataset("a toy", "CC0", "toy.{}.tokens", splits, sources)
    monkeypatch.setattr(datasets, "DATASETS", {"toy": toy})


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    folder = tmp_path / "local"
    folder.mkdir()
    for split, text in LOCAL_ONLY.items():
        (folder / f"{split}.txt").write_bytes(text)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in folder.glob("*.txt")}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", DATASETS)
def test_the_table_is_consistent(name: str) -> None:
    dataset = DATASETS[name]
    assert set(dataset.splits) == {"train", "valid", "test"}
    for remotes in dataset.sources:
        assert {split for remote in remotes for split in remote.members} == set(dataset.splits)
        for remote in remotes:
            assert remote.url.startswith("https://")
            assert len(remote.sha256) == 64
            assert int(remote.sha256, 16)
            for split, member in remote.members.items():
                file = dataset.splits[split]
                assert member or (remote.size, remote.sha256) == (file.size, file.sha256)


@pytest.mark.parametrize(
    ("name", "split"), [("ptb", "train"), ("ptb", "valid"), ("wikitext-2", "valid")]
)
def test_the_published_sums_are_those_of_real_copies(name: str, split: str) -> None:
    path = SHARED / name / f"{split}.txt"
    if not path.exists():
        pytest.skip(f"{name} is not at hand")
    published = DATASETS[name].splits[split]
    content = path.read_bytes()
    assert (len(content), sha256(content)) == (published.size, published.sha256)


@pytest.mark.parametrize("kind", ["zip", "plain"])
def test_a_data_set_is_fetched_to_a_folder(
    kind: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, site.zip("toy.zip") if kind == "zip" else site.plain())
    seen: list[tuple[str, int, int | None]] = []
    target = tmp_path / "data" / "toy"
    folder = fetch("toy", target, on_progress=lambda *args: seen.append(args))
    assert folder == target
    assert contents(folder) == TEXTS
    assert names(folder.parent) == {"toy"}
    description = describe(folder)
    assert description["name"] == "toy"
    assert description["licence"] == "CC0"
    assert all(url.startswith(site.url) for url in description["origin"])
    assert description["splits"]["valid"] == {
        "file": "valid.txt",
        "bytes": len(TEXTS["valid"]),
        "sha256": sha256(TEXTS["valid"]),
        "as_published": True,
    }
    expected = {"toy.zip"} if kind == "zip" else {"train.txt", "valid.txt", "test.txt"}
    assert {file_name for file_name, _, _ in seen} == expected
    assert all(done <= (total or 0) for _, done, total in seen)


def test_a_complete_folder_is_left_as_it_is(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, site.zip("toy.zip"))
    folder = fetch("toy", tmp_path / "toy")
    before = (folder / "train.txt").stat().st_ino
    fetch("toy", folder)
    assert site.asked == ["/toy.zip"]
    assert (folder / "train.txt").stat().st_ino == before


def test_the_next_source_is_tried_when_one_fails(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, wrong, good = site.zip("gone.zip"), site.zip("wrong.zip"), site.plain()
    (site.folder / "gone.zip").unlink()
    (site.folder / "wrong.zip").write_bytes(b"?" * wrong[0].size)
    publish(monkeypatch, gone, wrong, good)
    messages: list[str] = []
    folder = fetch("toy", tmp_path / "toy", on_message=messages.append)
    assert contents(folder) == TEXTS
    assert "404" in messages[0]
    assert "SHA-256" in messages[1]
    assert len(messages) == 2
    assert describe(folder)["origin"] == [remote.url for remote in good]


def test_when_every_source_fails_each_reason_is_told_and_nothing_is_left(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, wrong = site.zip("gone.zip"), site.zip("wrong.zip")
    (site.folder / "gone.zip").unlink()
    (site.folder / "wrong.zip").write_bytes(b"?" * wrong[0].size)
    publish(monkeypatch, gone, wrong)
    with pytest.raises(DownloadError) as caught:
        fetch("toy", tmp_path / "out" / "toy")
    assert "none of its 2 sources" in str(caught.value)
    assert "404" in str(caught.value)
    assert wrong[0].sha256 in str(caught.value)
    assert "--from" in caught.value.hint
    assert names(tmp_path / "out") == set()


def test_what_came_before_a_failure_is_not_fetched_twice(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, site.plain())
    (site.folder / "test.txt").unlink()
    target = tmp_path / "out" / "toy"
    with pytest.raises(DownloadError, match="404"):
        fetch("toy", target)
    assert not target.exists()
    site.asked.clear()
    (site.folder / "test.txt").write_bytes(TEXTS["test"])
    assert contents(fetch("toy", target)) == TEXTS
    assert site.asked == ["/test.txt"]
    assert names(target.parent) == {"toy"}


GOOD_MEMBERS = {f"toy/{split}.tokens": text for split, text in TEXTS.items()}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({**GOOD_MEMBERS, "../outside.txt": b"x"}, "unsafe member '../outside.txt'"),
        ({**GOOD_MEMBERS, "toy/../../outside.txt": b"x"}, "unsafe member"),
        ({**GOOD_MEMBERS, "/outside.txt": b"x"}, "unsafe member '/outside.txt'"),
        ({**GOOD_MEMBERS, "..\\outside.txt": b"x"}, "unsafe member"),
        ({**GOOD_MEMBERS, "C:outside.txt": b"x"}, "unsafe member 'C:outside.txt'"),
        ({"toy/train.tokens": TEXTS["train"]}, "the archive has no toy/valid.tokens"),
        ({**GOOD_MEMBERS, "toy/train.tokens": b"0" * 10_000_000}, "10000000 bytes, expected 600"),
        ({**GOOD_MEMBERS, "toy/test.tokens": b"no end\n"}, "test text has the SHA-256"),
    ],
)
def test_an_archive_that_is_not_as_it_should_be_is_refused(
    members: dict[str, bytes],
    reason: str,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(monkeypatch, site.zip("bad.zip", zip_of(members)))
    before = names(tmp_path)
    with pytest.raises(DownloadError) as caught:
        fetch("toy", tmp_path / "out" / "toy")
    assert reason in str(caught.value)
    assert names(tmp_path / "out") == set()
    assert names(tmp_path) == before | {"out"}


def test_an_archive_with_a_link_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO(zip_of(GOOD_MEMBERS))
    with zipfile.ZipFile(buffer, "a") as archive:
        link = zipfile.ZipInfo("toy/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    publish(monkeypatch, site.zip("bad.zip", buffer.getvalue()))
    with pytest.raises(DownloadError, match="unsafe member 'toy/link'"):
        fetch("toy", tmp_path / "toy")


@pytest.mark.parametrize("damage", ["no zip", "flipped"])
def test_a_broken_archive_is_refused(
    damage: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray(zip_of(GOOD_MEMBERS))
    content = bytearray(b"not a zip file") if damage == "no zip" else content
    if damage == "flipped":
        content[60] ^= 0xFF  # within the compressed bytes of the first member
    publish(monkeypatch, site.zip("bad.zip", bytes(content)))
    with pytest.raises(DownloadError, match="not a usable zip file"):
        fetch("toy", tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


@pytest.mark.usefixtures("toy")
def test_a_local_folder_may_lack_the_test_text(local: Path, tmp_path: Path) -> None:
    (local / "train.txt").write_bytes(b"another order\n")
    folder = fetch("toy", tmp_path / "toy", source=local)
    assert contents(folder) == {"train": b"another order\n", "valid": TEXTS["valid"]}
    description = describe(folder)
    assert description["origin"] == [str(local)]
    splits = description["splits"]
    assert {split: entry["as_published"] for split, entry in splits.items()} == {
        "train": False,
        "valid": True,
    }
    assert splits["train"]["sha256"] == sha256(b"another order\n")


@pytest.mark.usefixtures("toy")
def test_a_local_folder_may_use_the_published_names(local: Path, tmp_path: Path) -> None:
    (local / "train.txt").rename(local / "toy.train.tokens")
    assert contents(fetch("toy", tmp_path / "toy", source=local)) == LOCAL_ONLY


@pytest.mark.usefixtures("toy")
def test_a_local_folder_fetched_twice_is_taken_again_only_when_it_changed(
    local: Path, tmp_path: Path
) -> None:
    folder = fetch("toy", tmp_path / "toy", source=local)
    inode = (folder / "train.txt").stat().st_ino
    fetch("toy", folder, source=local)
    assert (folder / "train.txt").stat().st_ino == inode
    (local / "train.txt").write_bytes(b"changed\n")
    with pytest.raises(OutputError) as caught:
        fetch("toy", folder, source=local)
    assert "--force" in caught.value.hint
    assert contents(folder) == LOCAL_ONLY
    fetch("toy", folder, source=local, force=True)
    assert contents(folder)["train"] == b"changed\n"
    assert names(tmp_path) == {"local", "toy"}


@pytest.mark.usefixtures("toy")
def test_a_damaged_copy_does_not_count_as_there(local: Path, tmp_path: Path) -> None:
    folder = fetch("toy", tmp_path / "toy", source=local)
    (folder / "valid.txt").write_bytes(b"cut")
    with pytest.raises(OutputError):
        fetch("toy", folder, source=local)
    fetch("toy", folder, source=local, force=True)
    assert contents(folder) == LOCAL_ONLY


@pytest.mark.usefixtures("toy")
def test_local_folders_that_cannot_be_used(local: Path, tmp_path: Path) -> None:
    target = tmp_path / "toy"
    with pytest.raises(DataError, match="no such folder"):
        fetch("toy", target, source=tmp_path / "missing")
    (local / "valid.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"valid\.txt: the file is empty"):
        fetch("toy", target, source=local)
    (local / "train.txt").unlink()
    with pytest.raises(DataError, match=r"has no train\.txt or toy\.train\.tokens"):
        fetch("toy", target, source=local)
    assert names(tmp_path) == {"local"}


@pytest.mark.usefixtures("toy")
def test_nothing_of_the_user_is_ever_replaced(local: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work")
    for force in (False, True):
        with pytest.raises(OutputError, match="the folder holds other files"):
            fetch("toy", own, source=local, force=force)
    with pytest.raises(OutputError, match="is a file, not a folder"):
        fetch("toy", own / "thesis.txt", source=local, force=True)
    for target in (local, local.parent):
        with pytest.raises(OutputError, match="the source itself or around it"):
            fetch("toy", target, source=local, force=True)
    fetched = fetch("toy", tmp_path / "toy", source=local)
    (fetched / "notes.md").write_text("mine")
    (local / "train.txt").write_text("changed\n")
    with pytest.raises(OutputError, match="the folder holds other files"):
        fetch("toy", fetched, source=local, force=True)
    assert (own / "thesis.txt").read_text() == "years of work"
    assert contents(local)["train"] == b"changed\n"


@pytest.mark.usefixtures("toy")
def test_an_empty_folder_is_filled(local: Path, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    assert contents(fetch("toy", tmp_path / "toy", source=local)) == LOCAL_ONLY


@pytest.mark.usefixtures("toy")
def test_a_failed_copy_leaves_the_older_folder(
    local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch("toy", tmp_path / "toy", source=local)
    (local / "train.txt").write_bytes(b"changed\n")

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqtool.text.archives.shutil.copyfileobj", full)
    with pytest.raises(OutputError, match=r"train\.txt: no space left on device"):
        fetch("toy", folder, source=local, force=True)
    assert contents(folder) == LOCAL_ONLY
    assert names(tmp_path) == {"local", "toy"}


@pytest.mark.usefixtures("toy")
def test_a_failed_last_step_brings_the_older_folder_back(
    local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch("toy", tmp_path / "toy", source=local)
    (local / "train.txt").write_bytes(b"changed\n")
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(source).name == "folder":
            raise PermissionError(13, "Permission denied", str(target))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OutputError, match="permission denied"):
        fetch("toy", folder, source=local, force=True)
    assert contents(folder) == LOCAL_ONLY
    assert names(tmp_path) == {"local", "toy"}


def test_an_unknown_name_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data set is called 'wikitext2'") as caught:
        fetch("wikitext2", tmp_path / "x")
    assert "wikitext-2" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"splits": 3}'])
def test_a_folder_without_a_usable_description(text: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(text)
    with pytest.raises(DataError, match="does not describe a data set"):
        describe(tmp_path)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command("fetch")(fetch_command)
    return app


@pytest.mark.usefixtures("toy")
def test_the_command_prints_the_folder(app: typer.Typer, local: Path, tmp_path: Path) -> None:
    target = tmp_path / "toy"
    result = CliRunner().invoke(app, ["toy", "-o", str(target), "--from", str(local)])
    assert result.exit_code == 0
    assert result.stdout == f"{target}\n"
    assert "not in the source: test" in result.stderr
    assert "train.txt, 600 bytes\n" in result.stderr


def test_the_command_prints_json_and_plain_progress(
    app: typer.Typer, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, site.zip("toy.zip"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["toy", "--json"])
    printed = json.loads(result.stdout)
    assert printed["folder"] == "toy"
    assert printed["splits"]["train"]["bytes"] == 600
    size = (site.folder / "toy.zip").stat().st_size
    assert result.stderr == f"fetching toy.zip ({size} bytes)\nfetched toy.zip\n"


def test_the_command_shows_a_bar_on_a_terminal(
    app: typer.Typer, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = site.zip("gone.zip")
    (site.folder / "gone.zip").unlink()
    publish(monkeypatch, gone, site.zip("toy.zip"))
    result = CliRunner().invoke(
        fetch_on_a_terminal(app, monkeypatch), ["fetch", "toy", "-o", str(tmp_path / "t")]
    )
    assert result.exit_code == 0
    assert "toy.zip" in result.stderr
    assert "; trying the next source\n" in result.stderr
    assert result.stdout == f"{tmp_path / 't'}\n"


def fetch_on_a_terminal(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Make the runner's stderr say that it is a terminal."""

    @app.callback(invoke_without_command=True)
    def _terminal() -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return app


def test_the_command_lists_the_data_sets(app: typer.Typer) -> None:
    lines = CliRunner().invoke(app, ["--list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(DATASETS)
    printed = json.loads(CliRunner().invoke(app, ["--list", "--json"]).stdout)
    assert [row["name"] for row in printed["datasets"]] == list(DATASETS)


def test_the_command_wants_a_name(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "--list" in result.stderr
