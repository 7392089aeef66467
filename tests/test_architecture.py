"""The rules that no other tool checks: who may import what, and what is shipped."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import seqtool
from seqtool.core.config import from_dict, load_yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "seqtool"
# a folder imports from those of lower floors, and from itself; of one floor, none knows the other
FLOORS = (
    ("core",),
    ("training", "text", "treebank"),
    ("lm",),
    ("parsing",),
    ("classification",),
    ("analysis", "spark", "server"),
    ("cli",),
)
# inside a folder, too, imports point downward; a module that is not named has no inner importer
INNER_FLOORS = {
    "core": (
        (
            *("arrays", "errors", "signals", "terminal", "units"),
            "version",
        ),
        ("jit", "one_line", "storage", "strict_yaml"),
        ("bootstrap", "config", "progress", "reading", "runtime", "vocabulary"),
        ("checkpoint", "processes"),
        ("instructions", "eight_bytes"),
        ("string_table",),
    ),
    "training": (
        ("config", "hardware", "run", "task"),
        ("optimisers", "tuning"),
        ("state",),
        ("loop",),
    ),
}


# analyses of recurrent networks, which are differentiated
NEED_GRADIENTS = ("recurrence", "gradients", "spectra", "gates", "dynamics", "cells")


def may_import_torch(module: str) -> bool:
    """Whether the name of a module says that it may: by its folder or by its file."""
    *folders, name = module.split(".")
    if name in ("config", "recipes"):
        return False
    return (
        name in ("network", "task", "train", "losses")
        or folders[:1] == ["training"]
        or folders == ["lm", "neural"]
        or module == "parsing.syntactic.model"
        or module in ("parsing.encoding.encoder", "parsing.pipeline.folds")
        or (folders == ["analysis"] and name in NEED_GRADIENTS)
    )


@dataclass(frozen=True)
class Import:
    """Module `source` (without the leading `seqtool.`) imports `target` (its full name)."""

    source: str
    target: str
    at_top: bool

    @property
    def inner(self) -> str:
        """The target without `seqtool.`, or "" when it is of another package."""
        return self.target.removeprefix("seqtool.") if self.target.startswith("seqtool.") else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module, read when it is first asked for: not by workers that run other tests."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports_of(name: str) -> Iterator[Import]:
    """Every import of a module, those inside functions and for the type checker too."""
    pending: list[tuple[ast.AST, bool]] = [(trees()[name], True)]
    while pending:
        node, at_top = pending.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            at_top = False
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, at_top)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import; write the full name"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("seqtool.")
                is_module = inner in MODULES
                target = f"{node.module}.{alias.name}" if is_module else str(node.module)
                yield Import(name, target, at_top)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        pending.extend((child, at_top and not inside) for child in ast.iter_child_nodes(node))


@cache
def all_imports() -> list[Import]:
    return [found for name in MODULES for found in imports_of(name)]


@cache
def inner_imports() -> list[Import]:
    """Those of the package; itself, it only names what is public, or starts the command."""
    return [
        found
        for found in all_imports()
        if found.source not in ("", "__main__") and found.target != "seqtool" and found.inner
    ]


def covers(prefixes: tuple[str, ...], module: str) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def floor_of(name: str, floors: tuple[tuple[str, ...], ...]) -> int:
    for number, names in enumerate(floors):
        if name in names:
            return number
    raise AssertionError(f"{name} is on no floor: add it to FLOORS or INNER_FLOORS")


def test_imports_point_downward() -> None:
    assert [found.source for found in all_imports() if found.target == "seqtool"] == []
    upward = []
    for found in inner_imports():
        source, target = found.source.partition(".")[0], found.inner.partition(".")[0]
        is_lower = floor_of(target, FLOORS) < floor_of(source, FLOORS) or target == source
        if not is_lower:
            upward.append(f"{found.source} -> {found.inner}")
    assert upward == []


@pytest.mark.parametrize("folder", INNER_FLOORS)
def test_imports_point_downward_inside(folder: str) -> None:
    floors = INNER_FLOORS[folder]
    files = {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__"}
    assert files == {name for floor in floors for name in floor}
    upward = [
        f"{found.source} -> {found.inner}"
        for found in inner_imports()
        if covers((folder,), found.source) and covers((folder,), found.inner)
        if floor_of(found.inner.rpartition(".")[2], floors)
        >= floor_of(found.source.rpartition(".")[2], floors)
    ]
    assert upward == []


def test_no_import_cycles() -> None:
    """Not even of imports that wait for use, or that only the type checker reads."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in inner_imports():
        if found.inner != found.source:
            graph[found.source].add(found.inner)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize(
    ("library", "may_import"),
    [
        ("rich", lambda name: covers(("core.progress", "treebank.drawing", "cli"), name)),
        ("typer", lambda name: covers(("cli",), name)),
        ("torch", may_import_torch),
    ],
)
def test_library_stays_in_its_place(library: str, may_import: Callable[[str], bool]) -> None:
    """Imports that wait for use count too."""
    importers = {
        found.source for found in all_imports() if found.target.partition(".")[0] == library
    }
    assert {name for name in importers if not may_import(name)} == set()


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for name in ("plot", "tensorboard", "pandas", "parquet", "spacy", "scale", "serve"):
        lines += project["optional-dependencies"][name]
    names = [Requirement(line).name.replace("pyyaml", "yaml") for line in lines]
    imported = {found.target.partition(".")[0] for found in all_imports()}
    declared = {name.replace("-", "_") for name in names} | {"seqtool"}
    assert imported - declared - sys.stdlib_module_names == set()


def test_nothing_executes_code_from_files() -> None:
    runners = {
        *("eval", "exec", "compile", "__import__", "os.system"),
        *("torch.load", "torch.save", "torch.hub.load", "yaml.load", "yaml.unsafe_load"),
    }
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if ast.unparse(node.func) in runners
        or {keyword.arg for keyword in node.keywords} & {"allow_pickle", "shell"}
    ]
    assert wrong == []
    serialisers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    assert not serialisers & {found.target.partition(".")[0] for found in all_imports()}


def test_all_that_is_printed_is_made_safe_for_a_terminal() -> None:
    own = {"core.terminal": {"sys.stdout", "sys.stderr"}, "core.progress": {"Console"}}
    unsafe = {"typer.echo", "typer.secho", "click.echo", "Console", "print"}
    streams = {"sys.stdout", "sys.stderr", "sys.__stdout__"}
    wrong = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            used = ""
            if isinstance(node, ast.Call) and "file" not in {key.arg for key in node.keywords}:
                used = ast.unparse(node.func)
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in streams:
                used = ast.unparse(node)
            if used in (unsafe | streams) - own.get(name, set()):
                wrong.append(f"{name}:{node.lineno}: {used}")
    assert wrong == []


def test_every_error_names_the_next_step() -> None:
    from seqtool.core import errors

    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.SeqtoolError)
    }
    assert [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds
        if not {keyword.arg for keyword in node.keywords} & {"hint", None}
    ] == []


def test_public_names_are_exported_lazily() -> None:
    assert seqtool.__all__ == sorted(set(seqtool.__all__))
    for name in seqtool.__all__:
        assert getattr(seqtool, name).__module__.startswith("seqtool.")
        assert name in dir(seqtool)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        seqtool.nothing  # noqa: B018


def recipes() -> list[Path]:
    return sorted((PACKAGE / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", recipes(), ids=lambda path: path.stem)
def test_recipe_is_valid(path: Path) -> None:
    from seqtool.lm.neural.config import NeuralLMConfig

    config = from_dict(NeuralLMConfig, load_yaml(path))
    assert config.description, "say what the recipe is and what to expect of it"


def test_version_is_of_the_newest_changelog_entry_or_to_follow_it() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)
    version = Version(seqtool.__version__)
    if version.is_devrelease:
        assert entries[0] == "Unreleased"
        assert Version(entries[1]) < version
    else:
        assert entries[0] == seqtool.__version__


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name]


def test_no_machine_paths_and_no_package_registries() -> None:
    # written in pieces, so that this file does not match itself
    patterns = (
        *("/" + folder + "/" for folder in ("work", "root", "opt/wheels", "opt/pypi")),
        r"/home/[a-z]+/",
        r"/Users/[A-Za-z]+/",
        *("py" + host for host in (r"pi\.org", r"thonhosted\.org", r"torch\.org/whl")),
        r"anaconda\.org",
        "index" + "-url",
    )
    wrong = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # binary, or deleted but not yet committed
            continue
        if path.name in ("Makefile", "first-hour.md"):  # which get PyTorch's build for the CPU
            text = re.sub("https://download.py" + r"torch\.org/whl/cpu", "", text)
        wrong += [
            f"{path.relative_to(ROOT)}: {pattern}"
            for pattern in patterns
            if re.search(pattern, text)
        ]
    assert wrong == []


def test_wheel_carries_sample_recipes_and_manual(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    names = set(ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    expected = {f"seqtool/recipes/{path.name}" for path in recipes()}
    expected |= {f"seqtool/manual/{path.name}" for path in (PACKAGE / "manual").glob("*.md")}
    expected |= {
        f"seqtool/sample_data/{path.relative_to(ROOT / 'data').as_posix()}"
        for path in [*(ROOT / "data").glob("*/*.*"), ROOT / "data" / "sample.json"]
        if path.suffix in (".txt", ".conllu", ".gz", ".json", ".tsv")
    }
    expected |= {"seqtool/py.typed", "seqtool/cli/app.py"}
    assert expected - names == set()
    assert {f"seqtool/sample_data/{code}/pairs.tsv" for code in ("en", "ko")} <= expected
    allowed = re.compile(
        r"seqtool/.+\.(py|typed|yaml|txt|tsv|conllu|conllu\.gz|json|css|js)|seqtool/manual/.+\.md"
        r"|.+\.dist-info/.+"
    )
    assert [name for name in names if not allowed.fullmatch(name)] == []
    assert [name for name in names if "sample_data" in name and name.endswith(".py")] == []


STRANGERS = [
    # counts and networks meet in a mixture, by what every language model answers
    *itertools.permutations(("lm.ngram", "lm.neural"), 2),
    # all parts of a pipeline know the encoding; what goes through a corpus knows them
    *itertools.permutations(("parsing.segmenter", "parsing.tagger", "parsing.parser"), 2),
    *itertools.product(
        ("parsing.encoding", "parsing.segmenter", "parsing.tagger", "parsing.parser"),
        ("parsing.annotation", "parsing.pipeline"),
    ),
]


def test_parts_know_nothing_of_one_another() -> None:
    assert [
        f"{found.source} -> {found.inner}"
        for found in inner_imports()
        for one, other in STRANGERS
        if covers((one,), found.source) and covers((other,), found.inner)
    ] == []


LIGHT = [
    f"seqtool.{name}" if name else "seqtool"
    for name in MODULES
    if name != "__main__" and not may_import_torch(name)
]


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        (f"import {', '.join(LIGHT)}", "torch"),
        (
            "import seqtool",
            "torch numpy rich typer seqtool.core.errors seqtool.core.config seqtool.cli",
        ),
        ("from seqtool import Pipeline, Doc, filter", "conllu pandas spacy torch"),
        (
            "from seqtool.cli.app import build_app; build_app([])",
            "torch numpy numba sentencepiece safetensors yaml",
        ),
    ],
    ids=["all light modules", "the package", "names of it", "the command line"],
)
def test_what_an_import_does_not_bring(statement: str, unwanted: str) -> None:
    script = f"{statement}\nimport sys\nprint(*{set(unwanted.split())} & set(sys.modules))"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_public_names_are_exported_lazily_and_seen_by_type_checkers() -> None:
    assert seqtool.__all__ == sorted(set(seqtool.__all__))
    for name in seqtool.__all__:
        assert getattr(seqtool, name).__module__.startswith("seqtool.")
        assert name in dir(seqtool)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        seqtool.nothing  # noqa: B018
    block = next(node for node in trees()[""].body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname for node in imports for alias in node.names}
    assert seen == {*seqtool.__all__}
