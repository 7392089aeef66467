"""Data sets by name: from a local web server, from a folder, and from sources that fail."""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from seqtool.cli.options import with_options
from seqtool.cli.prepare import fetch as fetch_command
from seqtool.core.errors import ConfigError, DataError, DownloadError, OutputError
from seqtool.text import datasets
from seqtool.text.datasets import DATASETS, Dataset, describe, fetch

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
TEXTS = {"train": b"the old man\n" * 50, "valid": b"a new day\n" * 5, "test": b"an end\n"}
LOCAL_ONLY = {split: TEXTS[split] for split in ("train", "valid")}
MEMBERS = {f"toy/toy.{split}.tokens": text for split, text in TEXTS.items()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class Site:
    """A folder that is served, and what was asked of it."""

    url: str
    folder: Path
    asked: list[str] = field(default_factory=list)

    def publish(
        self, monkeypatch: pytest.MonkeyPatch, *sources: str, archive: bytes = b"", **settings: Any
    ) -> None:
        """Make `toy` the only data set, with these sources."""
        values = {
            "size": sum(map(len, TEXTS.values())) + 1000,
            "splits": {split: sha256(text) for split, text in TEXTS.items()},
            "sources": tuple(f"{self.url}/{source}" for source in sources),
            "archive": sha256(archive),
        }
        toy = Dataset("a toy", "CC0", "toy.{}.tokens", **{**values, **settings})
        monkeypatch.setattr(datasets, "DATASETS", {"toy": toy})
        if archive:
            (self.folder / "toy.zip").write_bytes(archive)
        for split, text in TEXTS.items():
            (self.folder / f"{split}.txt").write_bytes(text)


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and three addresses that fail as real servers do."""

    site: Site

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        match self.path:
            case "/hangs-up.zip":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"a part")
            case "/endless.zip":
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(bytes(1000))
            case "/rude.zip":
                self.send_response(503, "\x1b[31mgo away")
                self.end_headers()
            case _:
                super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Does not report clients that hang up."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    folder = tmp_path / "site"
    folder.mkdir()
    handler = type("BoundHandler", (Handler,), {})
    server = Server(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    site = Site(f"http://127.0.0.1:{server.server_port}", folder)
    handler.site = site  # type: ignore[attr-defined]
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield site
    server.shutdown()
    server.server_close()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "unused").mkdir()
    Site("http://127.0.0.1:1", tmp_path / "unused").publish(monkeypatch, "toy.zip")


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
    assert all(source.startswith("https://") for source in dataset.sources)
    sums = [*dataset.splits.values(), *filter(None, [dataset.archive])]
    assert all(len(value) == 64 and int(value, 16) for value in sums)
    assert bool(dataset.archive) is any("{}" not in source for source in dataset.sources)


@pytest.mark.parametrize(
    ("name", "split"), [("ptb", "train"), ("ptb", "valid"), ("wikitext-2", "valid")]
)
def test_the_published_sums_are_those_of_real_copies(name: str, split: str) -> None:
    path = SHARED / name / f"{split}.txt"
    if not path.exists():
        pytest.skip(f"{name} is not at hand")
    assert sha256(path.read_bytes()) == DATASETS[name].splits[split]


@pytest.mark.parametrize("source", ["toy.zip", "{}.txt"])
def test_a_data_set_is_fetched_to_a_folder_once(
    source: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.publish(monkeypatch, source, archive=zip_of({**MEMBERS, "../outside.txt": b"x"}))
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "data" / "toy"
    folder = fetch("toy", target, on_progress=lambda *args: seen.append(args))
    assert folder == target
    assert contents(folder) == TEXTS
    assert names(folder) == {"dataset.json", "train.txt", "valid.txt", "test.txt"}
    assert names(folder.parent) == {"toy"}  # nothing of the download, nothing outside
    description = describe(folder)
    assert (description["name"], description["licence"]) == ("toy", "CC0")
    assert all(url.startswith(site.url) for url in description["origin"])
    assert description["splits"]["valid"] == {
        "file": "valid.txt",
        "bytes": len(TEXTS["valid"]),
        "sha256": sha256(TEXTS["valid"]),
        "as_published": True,
    }
    assert all(done <= (total or 0) for done, total in seen)
    assert seen[-1][0] == seen[-1][1]
    site.asked.clear()
    assert fetch("toy", folder) == folder
    assert site.asked == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("gone.zip", "the server answered 404"),
        ("rude.zip", "the server answered 503"),
        ("hangs-up.zip", "the connection broke"),
        ("endless.zip", "not the expected file"),
        ("wrong.zip", "its SHA-256 is not"),
    ],
)
def test_the_next_source_is_tried_when_one_fails(
    source: str, reason: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder / "wrong.zip").write_bytes(b"a login page")
    site.publish(monkeypatch, source, "{}.txt", archive=b"published")
    messages: list[str] = []
    folder = fetch("toy", tmp_path / "toy", on_message=messages.append)
    assert contents(folder) == TEXTS
    (message,) = messages
    assert reason in message
    assert "\x1b" not in message
    assert describe(folder)["origin"] == [f"{site.url}/{split}.txt" for split in TEXTS]


def test_when_every_source_fails_each_reason_is_told_and_nothing_is_left(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.publish(monkeypatch, "gone.zip", "{}.txt", archive=b"published")
    (site.folder / "valid.txt").write_bytes(b"cut")
    with pytest.raises(DownloadError, match="none of its 2 sources") as caught:
        fetch("toy", tmp_path / "out" / "toy")
    assert "404" in caught.value.message
    assert sha256(TEXTS["valid"]) in caught.value.message
    assert "--from" in caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toy")
def test_no_network_is_told(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="no connection") as caught:
        fetch("toy", tmp_path / "out" / "toy")
    assert "check the network" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_told(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publish(monkeypatch, "{}.txt")

    def fail(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(datasets.storage, "_flush_tree", fail)
    with pytest.raises(OutputError, match="no space left on device") as caught:
        fetch("toy", tmp_path / "out" / "toy")
    assert caught.value.path == str(tmp_path / "out" / "toy")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("members", "message"),
    [
        (MEMBERS, ""),
        ({"a/b/train.txt": b"x\n", "../train.tokens": b"y"}, ""),
        ({"train.txt": b""}, "the train text is empty"),
        ({"other.txt": b"x"}, "has no toy.train.tokens or train.txt"),
        ({"train.txt": bytes(2000)}, "has no toy.train.tokens or train.txt"),  # too large
    ],
)
def test_a_local_zip_file(
    members: dict[str, bytes], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MOST_BYTES", 1000)
    (tmp_path / "x.zip").write_bytes(zip_of(members))
    if message:
        with pytest.raises(DataError, match=message):
            fetch("toy", tmp_path / "toy", source=tmp_path / "x.zip")
        assert names(tmp_path) == {"x.zip", "unused"}
        return
    folder = fetch("toy", tmp_path / "toy", source=tmp_path / "x.zip")
    assert contents(folder)["train"] in (TEXTS["train"], b"x\n")
    assert fetch("toy", folder, source=tmp_path / "x.zip") == folder


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("damage", ["no zip", "flipped"])
def test_a_broken_local_zip_file_is_refused(damage: str, tmp_path: Path) -> None:
    content = bytearray(zip_of(MEMBERS))
    content[60] ^= 0xFF  # within the compressed bytes of the first member
    (tmp_path / "x.zip").write_bytes(b"not a zip file" if damage == "no zip" else content)
    with pytest.raises(DataError, match="not a usable zip file"):
        fetch("toy", tmp_path / "toy", source=tmp_path / "x.zip")
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
    assert names(tmp_path) == {"local", "toy", "unused"}


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
    with pytest.raises(DataError, match="the valid text is empty"):
        fetch("toy", target, source=local)
    (local / "train.txt").unlink()
    with pytest.raises(DataError, match=r"has no toy\.train\.tokens or train\.txt"):
        fetch("toy", target, source=local)
    assert names(tmp_path) == {"local", "unused"}


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

    monkeypatch.setattr("seqtool.text.datasets.shutil.copyfileobj", full)
    with pytest.raises(OutputError, match="toy: no space left on device"):
        fetch("toy", folder, source=local, force=True)
    assert contents(folder) == LOCAL_ONLY
    assert names(tmp_path) == {"local", "toy", "unused"}


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
    app.command("fetch")(with_options(fetch_command))
    return app


@pytest.mark.usefixtures("toy")
def test_the_command_prints_the_folder(app: typer.Typer, local: Path, tmp_path: Path) -> None:
    target = tmp_path / "toy"
    result = CliRunner().invoke(app, ["toy", "-o", str(target), "--from", str(local)])
    assert result.exit_code == 0
    assert result.stdout == f"{target}\n"
    assert "not in the source: test" in result.stderr
    assert "train.txt, 600 bytes\n" in result.stderr


def test_the_command_fetches_and_prints_json(
    app: typer.Typer, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.publish(monkeypatch, "gone.zip", "{}.txt", archive=b"published")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["toy", "--json"])
    printed = json.loads(result.stdout)
    assert printed["folder"] == "toy"
    assert printed["splits"]["train"]["bytes"] == 600
    assert (
        result.stderr == f"{site.url}/gone.zip: the server answered 404; trying the next source\n"
    )


def test_the_command_lists_the_data_sets(app: typer.Typer) -> None:
    lines = CliRunner().invoke(app, ["--list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(DATASETS)
    printed = json.loads(CliRunner().invoke(app, ["--list", "--json"]).stdout)
    assert [row["name"] for row in printed["datasets"]] == list(DATASETS)
    assert CliRunner().invoke(app, []).stdout.splitlines() == lines
