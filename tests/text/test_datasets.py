"""Data sets by name: from a local web server, from a folder, and from sources that fail."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import CommandResult

from seqtool.core.errors import ConfigError, DataError, DownloadError, OutputError
from seqtool.parsing import public_treebanks
from seqtool.text import datasets
from seqtool.text.datasets import DATASETS, Dataset, describe, fetch

TEXTS = {"train": b"the old man\n" * 50, "valid": b"a new day\n" * 5, "test": b"an end\n"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zip_of({f"toy/toy.{split}.tokens": text for split, text in TEXTS.items()})


class Quiet(SimpleHTTPRequestHandler):
    def send_header(self, keyword: str, value: str) -> None:
        more = 9 if keyword == "Content-Length" and "hu_cut" in self.path else 0  # never sent
        super().send_header(keyword, str(int(value) + more) if more else value)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a folder `site` that is served, with the texts and a zip file of them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "site").mkdir()
    for name, content in {**{f"{s}.txt": t for s, t in TEXTS.items()}, "toy.zip": ARCHIVE}.items():
        (tmp_path / "site" / name).write_bytes(content)
    handler = functools.partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def publish(monkeypatch: pytest.MonkeyPatch, *sources: str) -> None:
    """Make `toy` the only data set, with these sources."""
    sums = {split: sha256(text) for split, text in TEXTS.items()}
    toy = Dataset("a toy", "CC0", "toy.{}.tokens", 700, sums, sources, sha256(ARCHIVE))
    monkeypatch.setattr(datasets, "DATASETS", {"toy": toy})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in folder.glob("*.txt")}


@pytest.mark.parametrize(
    ("name", "split"), [("ptb", "train"), ("ptb", "valid"), ("wikitext-2", "valid")]
)
def test_the_published_sums_are_those_of_real_copies(
    name: str, split: str, shared_data: Path
) -> None:
    path = shared_data / name / f"{split}.txt"
    assert sha256(path.read_bytes()) == DATASETS[name].splits[split]


@pytest.mark.parametrize("source", ["toy.zip", "{}.txt"])
def test_a_data_set_is_fetched_to_a_folder_once(
    source: str, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, f"{site}/{source}")
    target = tmp_path / "data" / "toy"
    assert fetch("toy", target) == target
    assert contents(target) == TEXTS
    assert {path.name for path in target.iterdir()} - {f"{s}.txt" for s in TEXTS} == {
        "dataset.json"
    }
    valid = describe(target)["splits"]["valid"]
    assert (valid["sha256"], valid["as_published"]) == (sha256(TEXTS["valid"]), True)
    publish(monkeypatch, f"{site}/gone.zip")
    assert fetch("toy", target) == target  # which is there already


def test_the_next_source_is_tried_when_one_fails(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "wrong.zip").write_bytes(b"a login page")
    failing = [f"{site}/gone.zip", f"{site}/wrong.zip", "http://127.0.0.1:1/toy.zip"]
    publish(monkeypatch, *failing, f"{site}/{{}}.txt")
    messages: list[str] = []
    folder = fetch("toy", tmp_path / "toy", on_message=messages.append)
    assert contents(folder) == TEXTS
    for message, reason in zip(messages, ("404", "SHA-256", "ConnectionError"), strict=True):
        assert reason in message
    publish(monkeypatch, *failing)
    with pytest.raises(DownloadError, match=r"404.*SHA-256.*ConnectionError"):
        fetch("toy", tmp_path / "out" / "toy")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_local_source_may_lack_a_text(kind: str, tmp_path: Path) -> None:
    members = {"ptb.train.txt": b"another order\n", "valid.txt": b"a\n"}
    source = tmp_path / "source"
    if kind == "zip":
        source.write_bytes(zip_of({f"a/{name}": text for name, text in members.items()}))
    else:
        source.mkdir()
        for name, text in members.items():
            (source / name).write_bytes(text)
    folder = fetch("ptb", tmp_path / "ptb", source=source)
    assert contents(folder) == {"train": b"another order\n", "valid": b"a\n"}
    splits = describe(folder)["splits"]
    assert [split["as_published"] for split in splits.values()] == [False, False]
    with pytest.raises(OutputError) as caught:
        fetch("ptb", folder, source=source)
    assert "--force" in caught.value.hint
    fetch("ptb", folder, source=source, force=True)
    (folder / "notes.md").write_text("mine")
    with pytest.raises(OutputError, match="holds other files"):
        fetch("ptb", folder, source=source, force=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such folder or zip file"),
        (b"no zip file", "not a usable zip file"),
        (zip_of({"train.txt": b"text" * 99})[:60] + bytes(99), "not a usable zip file"),
        (zip_of({"train.txt": b""}), "has no text"),
        (zip_of({"other.txt": b"x"}), "has no text"),
    ],
)
def test_sources_that_cannot_be_used(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.zip").write_bytes(content)
    before = [*tmp_path.iterdir()]
    with pytest.raises(DataError, match=message):
        fetch("ptb", tmp_path / "ptb", source=tmp_path / "x.zip")
    assert [*tmp_path.iterdir()] == before
    with pytest.raises(ConfigError, match="no data set is called 'wikitext2'"):
        fetch("wikitext2", tmp_path / "x")


def test_the_command_fetches_and_lists(
    site: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seqtool: Callable[..., CommandResult],
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = json.loads(seqtool("fetch", "--list", "--json").stdout)["datasets"]
    assert [row["name"] for row in rows] == list(DATASETS)
    publish(monkeypatch, f"{site}/gone.zip", f"{site}/{{}}.txt")
    result = seqtool("fetch", "toy", "--json")
    printed = json.loads(result.stdout)
    assert (printed["folder"], printed["splits"]["train"]["bytes"]) == ("toy", 600)
    assert "trying the next source" in result.stderr


CODES = (
    "Hungarian:\n  flag: HU\n  lcode: hu\n  iso3: hun\nNorwegian:\n  flag: 'NO'\n  lcode: 'no'\n"
)
TREE = "1\tHó\thó\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def treebanks(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a Hungarian treebank without a test part, at the place of the real one."""
    monkeypatch.setattr(public_treebanks, "SITE", site)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "site" / "UD_Hungarian-Szeged" / "r2.16"
    for path, text in {
        tmp_path / "site" / "docs-automation" / "master" / "codes_and_flags.yaml": CODES,
        folder / "hu_szeged-ud-train.conllu": TREE * 3,
        folder / "hu_szeged-ud-dev.conllu": TREE,
        folder / "LICENSE.txt": "CC BY-NC-SA",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def test_a_treebank_is_fetched_by_its_name(
    treebanks: Path, seqtool: Callable[..., CommandResult]
) -> None:
    result = seqtool("fetch", "UD_Hungarian-Szeged")
    assert (result.code, result.stdout) == (0, "UD_Hungarian-Szeged\n"), result.stderr
    folder = Path("UD_Hungarian-Szeged")
    files = {path.name for path in treebanks.iterdir()}
    assert {path.name for path in folder.iterdir()} == {*files, "dataset.json"}
    train, dev = (folder / f"hu_szeged-ud-{part}.conllu" for part in ("train", "dev"))
    assert f"seqtool train-parser {train} --dev {dev}" in result.stderr
    assert "not in the source: test" in result.stderr
    assert describe(folder)["splits"]["train"]["sha256"] == sha256((TREE * 3).encode())
    (treebanks / train.name).unlink()
    assert seqtool("fetch", str(folder)).code == 1
    result = seqtool("fetch", str(folder), "--force")
    assert (result.code, train.exists()) == (0, False), result.stderr
    assert "seqtool inspect" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["UD_Szeged"], "UD_Hungarian-Szeged"),
        (["UD_Hungarian-Szeged", "--release", "../x"], "r2.16"),
        (["UD_Hungarian-Seged"], "hu_seged"),
        (["UD_Hungarain-Szeged"], "did you mean Hungarian"),
        (["ptb", "--release", "r2.16"], "--release"),
        (["UD_Hungarian-Html"], "not CoNLL-U"),
        (["UD_Hungarian-Cut"], "ChunkedEncodingError"),
    ],
)
def test_treebanks_that_cannot_be_fetched(
    words: list[str], message: str, treebanks: Path, seqtool: Callable[..., CommandResult]
) -> None:
    for name, text in {"Html": "<p>log in</p>\n", "Cut": TREE}.items():
        folder = treebanks.parents[1] / f"UD_Hungarian-{name}" / "r2.16"
        folder.mkdir(parents=True)
        (folder / f"hu_{name.lower()}-ud-train.conllu").write_text(text, "utf-8")
    before = set(Path().rglob("*"))
    result = seqtool("fetch", *words)
    *_, error, hint = result.stderr.splitlines()
    assert (result.code, error[:6], hint[:5]) == (1, "error:", "hint:"), result.stderr
    assert message in error + hint
    assert set(Path().rglob("*")) == before
