"""The rules that no other tool checks: who may import what, and what is shipped."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import seqtool
from seqtool.core.config import from_dict, load_yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "seqtool"
TASKS = ("lm.ngram", "lm.neural", "parsing")

# imports point to the same layer or downward; the first part of a module's name decides
LAYERS = (
    ("core.errors", "core.version"),
    (
        "core.arrays",
        "core.config",
        "training.processes",
        "core.runtime",
        "core.registry",
        "core.vocabulary",
        "training.hardware",
    ),
    (
        "lm.search",
        "core.checkpoint",
        "core.compiled",
        "corpora",
        "core.runtime",
        "lm.protocol",
        "lm.mixture",
        "core.checkpoint",
        "training.config",
        "training.optimisers",
        "lm.perplexity",
        "core.progress",
        "training.state",
        "lm.sampling",
        "lm.score_tables",
        "training.loop",
        "core.reading",
        "treebank",
        "text",
        "training",
        "core.storage",
        "core.progress",
        "training.loop",
        "training.run",
        "training.task",
    ),
    TASKS,
    ("analysis",),
    ("cli", "__main__"),
)
MAY_IMPORT_TORCH = (
    "training.hardware",
    "training.processes",
    "training.loop",
    "training.optimisers",
    "training.state",
    "training.loop",
    "training.task",
    "lm.neural.data",
    "lm.neural",
    "parsing.encoding.encoder",
    "parsing.encoding.encoder",
    "parsing.encoding.encoder",
    "parsing.parser.network",
    "parsing.pipeline.train",
    "parsing.encoding.encoder",
    "parsing.train",
    "parsing.segmenter.network",
    "parsing.segmenter.task",
    "parsing.segmenter.train",
    "parsing.tagger.train",
    "parsing.tagger.network",
    "parsing.tagger.task",
    "parsing.tagger.train",
    "parsing.parser.task",
    "parsing.parser.train",
)
NEVER_IMPORTS_TORCH = (
    "lm.neural.config",
    "parsing.parser.config",
    "parsing.pipeline.config",
    "parsing.segmenter.config",
    "parsing.tagger.config",
)
MAY_IMPORT_RICH = ("core.progress", "cli", "treebank.drawing")
MAY_IMPORT_TYPER = ("cli",)


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
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports_of(name: str) -> Iterator[Import]:
    """Every import of a module, those inside functions too; not those for the type checker."""
    pending: list[tuple[ast.AST, bool]] = [(TREES[name], True)]
    while pending:
        node, at_top = pending.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
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


IMPORTS = [found for name in MODULES for found in imports_of(name)]


def covers(prefixes: tuple[str, ...], module: str) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def layer(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if covers(names, module):
            return number
    raise AssertionError(f"seqtool.{module} belongs to no layer: add it to LAYERS")


def test_imports_point_downward() -> None:
    upward = [
        f"{found.source} -> {found.inner}"
        for found in IMPORTS
        if found.source and found.inner and layer(found.inner) > layer(found.source)
    ]
    assert upward == []


def test_tasks_never_import_one_another() -> None:
    def task(module: str) -> str:
        return next((name for name in TASKS if covers((name,), module)), "")

    crossing = [
        f"{found.source} -> {found.inner}"
        for found in IMPORTS
        if task(found.source) and task(found.inner) and task(found.source) != task(found.inner)
    ]
    assert crossing == []


def test_nobody_imports_the_command_line() -> None:
    importers = {found.source for found in IMPORTS if covers(("cli",), found.inner)}
    assert {name for name in importers if not covers(("cli", "__main__"), name)} == set()


def test_nobody_imports_the_version_from_the_package_root() -> None:
    assert {found.source for found in IMPORTS if found.target == "seqtool"} == set()


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in IMPORTS:
        if found.at_top and found.inner and found.inner != found.source:
            graph[found.source].add(found.inner)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("rich", MAY_IMPORT_RICH),
        ("typer", MAY_IMPORT_TYPER),
        ("torch", MAY_IMPORT_TORCH),
    ],
)
def test_library_stays_in_its_place(library: str, allowed: tuple[str, ...]) -> None:
    importers = {
        found.source
        for found in IMPORTS
        if found.target.partition(".")[0] == library and found.at_top
    }
    assert {name for name in importers if not covers(allowed, name)} == set()


def test_rich_and_typer_are_not_imported_lazily_elsewhere_either() -> None:
    places = {"rich": MAY_IMPORT_RICH, "typer": MAY_IMPORT_TYPER}
    strays = [
        f"{found.source} -> {found.target}"
        for found in IMPORTS
        for library, allowed in places.items()
        if found.target.partition(".")[0] == library and not covers(allowed, found.source)
    ]
    assert strays == []


def test_torch_is_not_imported_with_the_light_modules() -> None:
    light = [
        f"seqtool.{name}" if name else "seqtool"
        for name in MODULES
        if name != "__main__"
        and (covers(NEVER_IMPORTS_TORCH, name) or not covers(MAY_IMPORT_TORCH, name))
    ]
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name + ' imports torch'\n"
    )
    subprocess.run([sys.executable, "-c", script, *light], check=True, cwd=ROOT)


def test_command_line_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from seqtool.cli.app import build_app\n"
        "build_app()\n"
        "heavy = {'torch', 'numpy', 'numba', 'sentencepiece', 'safetensors', 'yaml'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout.split() == []


def test_nothing_executes_code_from_files() -> None:
    found = []
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            keywords = {keyword.arg for keyword in node.keywords}
            if called in (
                "eval",
                "exec",
                "compile",
                "__import__",
                "torch.load",
                "torch.save",
                "torch.hub.load",
                "yaml.load",
                "yaml.unsafe_load",
                "os.system",
            ) or keywords & {"allow_pickle", "shell"}:
                found.append(f"{name}:{node.lineno}: {called}")
    assert found == []
    serialisers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    importers = {found.source for found in IMPORTS if found.target.partition(".")[0] in serialisers}
    assert importers == {"core.compiled"}  # for the name of an error only


def test_public_names_are_exported_lazily() -> None:
    assert seqtool.__all__ == sorted(set(seqtool.__all__))
    for name in seqtool.__all__:
        assert getattr(seqtool, name).__module__.startswith("seqtool.")
        assert name in dir(seqtool)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        seqtool.nothing  # noqa: B018


def test_type_checkers_see_the_public_names() -> None:
    block = next(node for node in TREES[""].body if isinstance(node, ast.If))
    seen = {
        (alias.name, alias.asname, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(name, name, seqtool._PUBLIC[name]) for name in seqtool.__all__}


def test_importing_the_package_imports_its_version_and_nothing_else() -> None:
    script = (
        "import sys, seqtool\n"
        "ours = {m for m in sys.modules if m.startswith('seqtool.')}\n"
        "print(*sorted(ours - {'seqtool.core', 'seqtool.core.version'}))\n"
        "print(*sorted({'torch', 'numpy', 'rich', 'typer'} & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout.split() == []


def recipes() -> list[Path]:
    return sorted((PACKAGE / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", recipes(), ids=lambda path: path.stem)
def test_recipe_is_valid(path: Path) -> None:
    from seqtool.lm.neural.config import NeuralLMConfig

    config = from_dict(NeuralLMConfig, load_yaml(path))
    assert config.description, "say what the recipe is and what to expect of it"


def test_newest_changelog_entry_is_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == seqtool.__version__


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
        wrong += [
            f"{path.relative_to(ROOT)}: {pattern}"
            for pattern in patterns
            if re.search(pattern, text)
        ]
    assert wrong == []


def test_wheel_carries_sample_recipes_and_manual(tmp_path: Path) -> None:
    from zipfile import ZipFile

    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    names = set(ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    expected = {f"seqtool/recipes/{path.name}" for path in recipes()}
    expected |= {f"seqtool/manual/{path.name}" for path in (PACKAGE / "manual").glob("*.md")}
    expected |= {
        f"seqtool/sample_data/{path.relative_to(ROOT / 'data').as_posix()}"
        for path in [*(ROOT / "data").glob("*/*.*"), ROOT / "data" / "sample.json"]
        if path.suffix in (".txt", ".conllu", ".gz", ".json")
    }
    expected |= {"seqtool/py.typed", "seqtool/cli/app.py"}
    assert expected - names == set()
    assert len([name for name in expected if name.endswith(".txt")]) >= 6
    allowed = re.compile(
        r"seqtool/.+\.(py|typed|yaml|txt|conllu|conllu\.gz|json)|seqtool/manual/.+\.md"
        r"|.+\.dist-info/.+"
    )
    assert [name for name in names if not allowed.fullmatch(name)] == []
    assert [name for name in names if "sample_data" in name and name.endswith(".py")] == []
