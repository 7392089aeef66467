"""README and manual are a promise: commands run as written, links lead on, all is current.

Every `sh` and `python` block of a page runs, in order, in a folder of the page's own that holds the
files of `make_files`. Two things differ from a reader's shell: trainings are made short by
`SHORTER`, and the shipped sample is cut. A block that cannot run so has a comment before it,
`<!-- needs: ... -->`, which gives the reason.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import CommandResult
from typer.main import get_params_from_function

from seqtool.cli.app import COMMANDS, GROUPS, complete, load_commands, main
from seqtool.cli.help import MANUAL, TOPICS, page_of

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (README, *sorted(MANUAL.rglob("*.md")))
}

_PARSER = "--set {0}training.epochs=1 --set {0}learning.min_steps=2 --set {0}model.encoder_size=8"
_ONE = (
    "--set training.epochs=1 --set training.time_limit=null --set learning.min_steps=2 --threads 1"
)
# what is added to a command that this matches, the first one only; a later option wins
SHORTER = (
    ("--resume", ""),
    ("train-parser .*--only", _ONE),
    (
        "train-parser .*--raw",
        f"{_PARSER.format('tagger.')} {_PARSER.format('parser.')} --set taggers=1 "
        "--set parsers=1 --set graphs=0 --set perceptrons=0 --set segmenter.training.epochs=1 "
        "--set segmenter.learning.min_steps=2 --set folds=2 "
        "--set time_limit=null --threads 1",
    ),
    ("train-parser .*--distil", f"{_ONE} --hidden 16"),
    ("train-parser .*(linear|mst)", "--set training.epochs=1 --set hash_bits=16 --threads 1"),
    ("train-parser .*--preset accurate", f"{_ONE} --hidden 16 --set model.encoder_size=8"),
    ("train-parser .*(graph|crf|matrix-tree)", f"{_ONE} --set model.encoder_size=8"),
    ("train-parser", f"{_ONE} --hidden 16"),
    ("train-classifier", "--set training.epochs=1 --threads 1"),
    ("train-tagger", f"{_ONE} --set model.encoder_size=8"),
    ("train-lm .*--syntactic", "--set training.epochs=1 --hidden 8 --threads 1"),
    (
        "train-lm",
        "--set training.epochs=1 --set training.time_limit=null --hidden 8 --embedding 8 "
        "--layers 1 --batch-size 4 --bptt 10 --threads 1",
    ),
    (
        "seqtool tune ",
        "--trials 2 --rounds 1 --set training.epochs=1 --set training.time_limit=null --threads 1",
    ),
    ("ngram snm .*--time-limit", "--time-limit 1s"),
    ("prepare .*--unit bpe", "--vocab-size 60"),
)

# models that a page uses and does not make: path -> the command
LM = {"runs/lm": "seqtool train-lm train.txt"}
LMS = {**LM, "runs/ngram": "seqtool ngram train train.txt"}
TREEBANK = "train.conllu --dev dev.conllu"
PARSER = {"runs/parser": f"seqtool train-parser {TREEBANK}"}
OTHER = {"runs/other": f"seqtool train-parser {TREEBANK} --seed 2"}
MINE = {"runs/mine": f"seqtool train-parser {TREEBANK} --raw"}
TAGGER = {"runs/tagger": f"seqtool train-tagger {TREEBANK}"}
SYNTACTIC = {"runs/syntactic": f"seqtool train-lm {TREEBANK} --syntactic"}
BROUGHT = {
    "seqtool/manual/measure.md": {**LMS, **PARSER, **OTHER, **MINE},
    "seqtool/manual/parsers.md": MINE,
    "seqtool/manual/ngrams.md": LM,
    "seqtool/manual/look-inside.md": {**LMS, **PARSER, **OTHER, **TAGGER, **SYNTACTIC},
    "seqtool/manual/labels.md": LM,
    "seqtool/manual/server-and-spark.md": MINE,
    "seqtool/manual/python.md": {**PARSER, **MINE},
}


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        language: the word after the fence.
        text: what is inside.
        line: the line of the page where the inside begins.
        needs: why the test cannot run it; None if it can.
    """

    language: str
    text: str
    line: int
    needs: str | None


def blocks_of(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        marked = re.fullmatch(r"<!-- needs:(.*)-->", lines[start - 1])
        needs = marked.group(1).strip() if marked else None
        inside = "\n".join(lines[start + 1 : end])
        yield Block(lines[start][3:].strip(), inside, start + 2, needs)


BLOCKS = {name: list(blocks_of(text)) for name, text in PAGES.items()}


def commands_of(block: Block) -> list[str]:
    """Return the commands of an `sh` block, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    return [line.strip() for line in joined.splitlines() if line.strip()]


def prose_of(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def seqtool_commands() -> list[str]:
    """Return every command of seqtool that a page shows, in a block or in the text."""
    found = []
    for name, text in PAGES.items():
        found += re.findall(r"`(seqtool [a-z][^`]*)`", prose_of(text))
        for block in BLOCKS[name]:
            if block.language == "sh":
                for command in commands_of(block):
                    found += re.findall(
                        r"(?:^|\| )(seqtool (?:'[^']*'|[^'])*?)(?= [|>] |$)", command
                    )
    return sorted(set(found))


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Command -> its options, long and short."""
    found = {}
    for name, function in load_commands().items():
        names = {"--help", "-h"}
        for parameter in get_params_from_function(function).values():
            declared = getattr(parameter.default, "param_decls", None) or (
                "--" + parameter.name.replace("_", "-"),
            )
            names.update(part for name in declared for part in name.split("/"))
        found[name] = names
    return found


@pytest.mark.parametrize("command", seqtool_commands())
def test_every_command_and_option_exists(command: str, options: dict[str, set[str]]) -> None:
    words = shlex.split(command, comments=True)[1:]
    if words[0] in ("COMMAND", "help"):
        return
    words = complete(words)
    name = " ".join(words[: 2 if words[0] in GROUPS else 1])
    assert name in COMMANDS
    flags = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
    assert [flag for flag in flags if flag not in options[name]] == []


def anchors_of(text: str) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose_of(text), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def cut_sample(folder: Path) -> Path:
    """Copy the beginning of the sample's files to `folder`, and return it."""
    from seqtool.text.datasets import sample_directory

    source = sample_directory()
    parts = (("train", 200), ("valid", 40), ("test", 40))
    for language, (split, lines) in itertools.product(("en", "ko"), parts):
        own, cut = source / language, folder / language
        cut.mkdir(parents=True, exist_ok=True)
        text = (own / f"{split}.txt").read_text(encoding="utf-8").splitlines(True)
        (cut / f"{split}.txt").write_text("".join(text[:lines]), encoding="utf-8")
        packed, plain = own / f"{split}.conllu.gz", own / f"{split}.conllu"
        trees = gzip.decompress(packed.read_bytes()) if packed.is_file() else plain.read_bytes()
        sentences = trees.decode("utf-8").split("\n\n")
        shortened = "\n\n".join(sentences[:lines]) + "\n\n"
        (cut / f"{split}.conllu").write_text(shortened, encoding="utf-8")
    shutil.copy(source / "en" / "pairs.tsv", folder / "en")
    shutil.copy(source / "sample.json", folder)
    return folder


def make_files(folder: Path, sample: Path) -> None:
    """Write the files that the pages speak of."""
    text = (sample / "en" / "train.txt").read_text(encoding="utf-8")
    short = (sample / "en" / "valid.txt").read_text(encoding="utf-8")
    opinions = [("fine", "good"), ("dull", "bad"), ("splendid", "good"), ("long", "bad")] * 6
    rows = [f'"The film was {word} ,",{label}' for word, label in opinions]
    (folder / "texts").mkdir()
    for name, content in {
        **dict.fromkeys(("my.txt", "train.txt", "corpus.txt", "texts/one.txt"), text),
        **dict.fromkeys(("dev.txt", "test.txt", "other.txt", "stimuli.txt"), short),
        "stimuli.csv": "item;condition;critical;text\n"
        '1;match;dog;"The old dog, it"\n1;mismatch;2;the dog\n',
        "nbest.txt": "a-1 the old dog\na-2 a old dog\n",
        "ac_cost": "a-1 2.5\na-2 1.5\n",
        "references.txt": "a the old dog\n",
        "lexicon.txt": "\n".join(sorted(set(text.split()))),
        "letter.txt": "The old dog sleeps. A cat saw it.\n\nIt ran.\n",
        "reviews.csv": "\n".join(["text,label", *rows]),
        "new.csv": 'text\n"A fine film, a dull end"\n',
        "posts.jsonl": "\n".join(json.dumps({"text": line}) for line in text.splitlines()),
        "other.arpa": "\\data\\\nngram 1=4\n\n\\1-grams:\n"
        "-99\t<s>\n-1\t</s>\n-1\t<unk>\n-0.5\tthe\n\n\\end\\\n",
    }.items():
        (folder / name).write_text(content, encoding="utf-8")
    for name, split in (("train", "train"), ("dev", "valid"), ("text", "test")):
        shutil.copy(sample / "en" / f"{split}.conllu", folder / f"{name}.conllu")
    trees = (folder / "train.conllu").read_text(encoding="utf-8")
    named = re.sub(r"^(.*\tPROPN\t.*)\t_$", r"\1\tNER=B-PER", trees, flags=re.MULTILINE)
    (folder / "names.conllu").write_text(named, encoding="utf-8")
    (folder / "big.gz").write_bytes(gzip.compress(text.encode("utf-8")))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the model that a training command without -o makes; it runs once for all pages."""
    folder = tmp_path_factory.mktemp("trained")
    make_files(folder, cut_sample(folder / "sample"))
    made: dict[str, Path] = {}

    def model(command: str) -> Path:
        if command not in made:
            output = folder / f"model{len(made)}"
            with contextlib.chdir(folder):
                words = [*shlex.split(command)[1:], *shorter(command), "-o", str(output)]
                assert main(words) == 0, command
            made[command] = output
        return made[command]

    return model


def shorter(command: str) -> list[str]:
    """Return the options that make a command short."""
    return next((shlex.split(more) for match, more in SHORTER if re.search(match, command)), [])


@pytest.mark.parametrize(
    # the Korean page has the commands of the English one, as a test below sees
    "name",
    [
        name
        for name, blocks in BLOCKS.items()
        if "/ko/" not in name and any(not block.needs for block in blocks)
    ],
)
def test_page_runs_as_written(
    name: str,
    seqtool: Callable[..., CommandResult],
    trained: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = cut_sample(tmp_path / "sample")
    monkeypatch.setattr("seqtool.text.datasets.sample_directory", lambda: sample)
    make_files(tmp_path, sample)
    monkeypatch.chdir(tmp_path)
    for path, command in BROUGHT.get(name, {}).items():
        shutil.copytree(trained(command), path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS[name]:
        where = f"{name}:{block.line}"
        if block.needs is not None:
            continue
        if block.language == "python" and can_import(block.text):
            exec(compile(block.text, where, "exec"), namespace)
        for command in commands_of(block) if block.language == "sh" else ():
            if shared := re.fullmatch(r"(seqtool train-parser .* --raw) -o (\S+)", command):
                shutil.copytree(trained(shared[1]), shared[2])
                continue
            words = [*shlex.split(command, comments=True), *shorter(command)]
            # what --memory grants is for the whole process, and that of the tests has taken much
            apart = "|" in words or "--memory" in words
            result = in_shell(command) if apart else seqtool(*words[1:])
            assert apart or words[0] == "seqtool", f"{where}: mark it with needs: {command}"
            assert result.code == 0, f"{where}: {command}\n{result.stderr}"


def in_shell(command: str) -> CommandResult:
    """Run a command in a process of its own."""
    run = subprocess.run(
        ["bash", "-ec", f'seqtool() {{ "{sys.executable}" -m seqtool "$@"; }}; {command}'],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return CommandResult(run.returncode, run.stdout, run.stderr)


def can_import(script: str) -> bool:
    """Return whether the modules of a script are installed: `kenlm` need not be."""
    return all(find_spec(name) for name in re.findall(r"^import (\w+)", script, flags=re.M))


def test_every_file_and_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for page, text in PAGES.items():
        files = re.findall(r"\b(?:data|seqtool|tests)/[\w/-]+\.(?:md|py|txt)\b", text)
        assert [path for path in files if not (ROOT / path).exists()] == [], page
        assert set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, flags=re.M)) <= targets, page


def test_topics_are_the_pages_and_every_command_stands_on_one() -> None:
    topics = TOPICS.keys() - {"reference", "settings"}  # these are made when asked for
    pages = sorted(page_of(name).relative_to(ROOT).as_posix() for name in topics)
    assert pages == sorted(PAGES.keys() - {"README.md"})
    assert [name for name in pages if f"({name})" not in PAGES["README.md"]] == []
    text = "".join(PAGES.values())
    assert [name for name in COMMANDS if f"seqtool {name}" not in text] == []


def test_the_korean_page_has_the_commands_of_the_english_one() -> None:
    english, korean = (
        [block._replace(line=0) for block in BLOCKS[page_of(name).relative_to(ROOT).as_posix()]]
        for name in ("first-hour", "ko")
    )
    assert english
    assert korean == english


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_on_and_every_mark_gives_a_reason(name: str) -> None:
    page, text = ROOT / name, PAGES[name]
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(text)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.is_file() or (
            anchor and anchor not in anchors_of(file.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    assert broken == []
    # each mark stands right before a block and says something
    assert sum(bool(block.needs) for block in BLOCKS[name]) == text.count("<!-- needs")
