"""Treebanks of Universal Dependencies by name, fetched to a folder.

    FOLDER/
      hu_szeged-ud-train.conllu        and -dev, -test: the parts that the release has
      LICENSE.txt                      of the treebank
      dataset.json                     name, release, origin, size and SHA-256 of each part

There is no list of treebanks: a name is that of a repository. Its files begin with the code of the
language, which stands in a table that Universal Dependencies keep.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqtool.core import runtime, storage
from seqtool.core.errors import ConfigError, DataError, DownloadError, did_you_mean, from_os_error
from seqtool.text.datasets import (
    DESCRIPTION_NAME,
    FORMAT_VERSION,
    MissingError,
    check_replaceable,
    retrieve,
)
from seqtool.treebank.conllu import read_conllu

SITE = "https://raw.githubusercontent.com/UniversalDependencies"
RELEASE = "r2.16"
LICENCE = "LICENSE.txt"
PARTS = ("train", "dev", "test")

_OURS = r"[a-z_0-9]+-ud-(train|dev|test)\.conllu|LICENSE\.txt|dataset\.json"
_HINT = "names are UD_Language-NAME, as UD_Hungarian-Szeged: see universaldependencies.org"


@runtime.writes_to("destination")
def fetch_treebank(
    name: str, destination: str | Path, *, release: str = RELEASE, force: bool = False
) -> Path:
    """Put a treebank into the folder `destination` and return that folder.

    The folder appears only when it is complete and every part is CoNLL-U.

    Args:
        name: of the treebank's repository, such as "UD_Hungarian-Szeged".
        destination: the folder to make.
        release: a tag of the repository, such as "r2.16".
        force: replace a treebank that is there.

    Raises:
        ConfigError: the name or the release has another form, or the language is unknown.
        DownloadError: there is no such treebank or release, or a file does not arrive whole.
        OutputError: `destination` exists with other contents, or cannot be written.
    """
    named, target = re.fullmatch(r"UD_([A-Za-z_]+)-([A-Za-z0-9_]+)", name), Path(destination)
    if named is None:
        raise ConfigError(f"no treebank is called {name!r}", hint=_HINT)
    if not re.fullmatch(r"\w[\w.-]*", release, re.ASCII):
        raise ConfigError(f"no release is called {release!r}", hint=f"write it as {RELEASE}")
    try:
        check_replaceable(target, _OURS, force)
        with storage.atomic_directory(target) as folder:
            prefix = f"{_code(named[1], folder)}_{named[2].lower()}-ud"
            address, parts = f"{SITE}/{name}/{release}", dict[str, Any]()
            for part in PARTS:
                file = f"{prefix}-{part}.conllu"
                try:
                    retrieve(f"{address}/{file}", folder / file)
                except MissingError:
                    continue
                parts[part] = {
                    "file": file,
                    "sentences": _sentences(folder / file, f"{address}/{file}"),
                    "bytes": (folder / file).stat().st_size,
                    "sha256": storage.sum_of(folder / file),
                }
            if not parts:
                what = f"there is no {name} of release {release} with files {prefix}-*.conllu"
                raise DownloadError(what, hint=_HINT, path=address)
            with suppress(MissingError):
                retrieve(f"{address}/{LICENCE}", folder / LICENCE)
            description = {
                "format_version": FORMAT_VERSION,
                "name": name,
                "release": release,
                "licence": LICENCE if (folder / LICENCE).is_file() else "not there",
                "origin": [f"{address}/{entry['file']}" for entry in parts.values()],
                "splits": parts,
            }
            storage.write_json(folder / DESCRIPTION_NAME, description)
    except OSError as error:
        raise from_os_error(error) from error
    return target


def _code(language: str, folder: Path) -> str:
    """Return the code of a language; its table passes through `folder`."""
    path, url = folder / "codes", f"{SITE}/docs-automation/master/codes_and_flags.yaml"
    retrieve(url, path)
    entry = r"^(\w[^:\n]*):\n(?:[ ].*\n)*?[ ]+lcode: *'?([a-z]+)"
    entries = re.findall(entry, path.read_text("utf-8", errors="replace"), re.MULTILINE)
    path.unlink()
    codes: dict[str, str] = {name.replace(" ", "_"): code for name, code in entries}
    if not codes:
        hint = "check the network and the proxy settings"
        raise DownloadError("is no table of languages", hint=hint, path=url)
    if language not in codes:
        what = f"no language of Universal Dependencies is called {language!r}"
        raise ConfigError(what, hint=did_you_mean(language, codes, otherwise=_HINT))
    return codes[language]


def _sentences(path: Path, url: str) -> int:
    """Return how many sentences a file has, having read them all."""
    try:
        return sum(1 for _ in read_conllu(str(path), skip_option=""))
    except DataError as error:
        what, hint = f"not CoNLL-U: {error.message}", "fetch it again, or another --release"
        raise DownloadError(what, hint=hint, path=url, line=error.line) from error
