"""Properties of the source code: purity, layering, file sizes, unfinished work.

Imports run one way: no modules import each other in a circle, even for types only, and the
packages inside the core and the daemon are ordered.

The state machine must be deterministic, so the modules that replicas replay must not use a clock, a
socket, a random number or the event loop. A reviewer forgets; this test does not.
Checks that ruff and mypy already make do not belong here.
"""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache, lru_cache
from pathlib import Path

import pytest

from deploy.compile import MODULES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cluster", "node", "pipeline", "chaos", "bench", "tests")
SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if not path.stem.endswith(("_pb2", "_pb2_grpc"))
)

C_SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.[ch]")
    if "build" not in path.relative_to(ROOT).parts
)
UNITS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests" / "unit")]

# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "uuid", "uvloop",
})
# fmt: on
PURE_PACKAGES = ("core", "protocol")
LEAVES = frozenset(
    {
        "addresses",
        "commands",
        "constants",
        "errors",
        "events",
        "exports",
        "numbers",
        "pace",
        "qless",
        "weights",
    }
)
# The packages of the library that a package may import, beside itself and the leaves.
ALLOWED = {
    "core": frozenset[str](),
    "protocol": frozenset[str](),
    "storage": frozenset[str](),
    "pb": frozenset[str](),
    "replication": frozenset({"core", "storage"}),
    "client": frozenset({"pb", "protocol"}),
    "exporting": frozenset({"places"}),
}
# The layers of the core and of the daemon, from bottom to top: a module imports only from its own
# layer and from lower layers. The longest name that matches a module determines its layer.
ORDER = {
    "beanpole.core": (
        ("beanpole.core.jobs",),
        ("beanpole.core.qless",),
        (
            *("beanpole.core.hosts", "beanpole.core.keys", "beanpole.core.equal_puts"),
            *("beanpole.core.sessions", "beanpole.core.users"),
        ),
        ("beanpole.core.applied", "beanpole.core.state"),
        ("beanpole.core.accounts",),
        ("beanpole.core.operations",),
        ("beanpole.core.machine",),
        ("beanpole.core.image",),
    ),
    "beanpoled": (
        (
            *("beanpoled.audit", "beanpoled.config", "beanpoled.disk", "beanpoled.eventlog"),
            *("beanpoled.links", "beanpoled.host.seam", "beanpoled.quiet", "beanpoled.trust"),
            *("beanpoled.first_process", "beanpoled.view"),
        ),
        ("beanpoled.shared",),
        ("beanpoled.origin", "beanpoled.peers"),
        ("beanpoled.frontends", "beanpoled.leading"),
        ("beanpoled.turn",),
        (
            *("beanpoled.host", "beanpoled.http", "beanpoled.rpc"),
            *("beanpoled.largest_queues", "beanpoled.node_view", "beanpoled.readiness"),
            *("beanpoled.program", "beanpoled.connections_view", "beanpoled.qless_view"),
            *("beanpoled.collecting", "beanpoled.reloading", "beanpoled.reporting"),
            *("beanpoled.supervision",),
            *("beanpoled.descriptors", "beanpoled.examining"),
        ),
        ("beanpoled.checking",),
        ("beanpoled.starting",),
        ("beanpoled.__main__", "beanpoled.cli", "beanpoled.launch", "beanpoled.main"),
    ),
}
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
# Of C; ruff checks those of Python.
COLUMNS_MAX = 100
# Written in two halves, so that this file does not match itself.
UNFINISHED = re.compile(
    "|".join(
        first + second
        for first, second in (
            (r"\bTO", r"DO\b"),
            (r"\bFIX", r"ME\b"),
            (r"\bXX", r"X\b"),
            ("NotImplemented", "Error"),
            (r"pytest\.", r"skip"),
            (r"mark\.", r"(skip|xfail)"),
            ("import", "orskip"),
        )
    )
)
SLEEP = re.compile(
    r"\btime\.slee" + r"p\(|asyncio\.slee" + r"p\((?!0\))"
    r"|from (time|asyncio) import [^\n]*\bslee" + r"p\b"
)


# Only the last tree is kept: with all of them, collecting garbage costs more than parsing.
@lru_cache(maxsize=1)
def parsed(path: Path) -> ast.Module:
    """Return the tree of a file."""
    return ast.parse(path.read_text())


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, handlers and cases inside a tree, without their expressions.

    Expressions are most of a tree, and hold neither imports nor functions with a name.
    """
    waiting = [tree]
    for item in waiting:
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            inside = getattr(item, field, None)
            if isinstance(inside, list):
                yield from inside
                waiting += inside


def imports(tree: ast.AST) -> set[str]:
    """Return the dotted names of all imports anywhere in the tree."""
    found: set[str] = set()
    for item in statements(tree):
        if isinstance(item, ast.Import):
            found |= {alias.name for alias in item.names}
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0 and item.module, "imports are absolute here"
            found |= {f"{item.module}.{alias.name}" for alias in item.names}
    return found


@cache
def imports_of(path: Path) -> set[str]:
    """Return the dotted names of all imports of a file."""
    return imports(parsed(path))


def tops(names: set[str]) -> set[str]:
    """Return the top-level packages of dotted names."""
    return {name.split(".")[0] for name in names}


def check_library(package: str, used: set[str]) -> None:
    """Check the import rule for one file of `cluster/beanpole/PACKAGE` (or a leaf file)."""
    assert "beanpoled" not in tops(used), "the library may not import the daemon"
    if package in PURE_PACKAGES or package in LEAVES:
        assert not tops(used) & IMPURE, f"impure import in replicated code: {tops(used) & IMPURE}"
    siblings = {
        name.split(".")[1] for name in used if name.startswith("beanpole.") and name.count(".") > 1
    }
    allowed = LEAVES | ALLOWED.get(package, frozenset()) | {package}
    assert siblings <= allowed, f"{package} may not import {sorted(siblings - allowed)}"


def check_error_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Check that no name stands for two types of errors in compiled code.

    There the name keeps the type of its first error, and the second is a TypeError in its handler:
    one bad frame of a peer stopped a node that way.
    """
    types: dict[str, str] = {}
    for item in statements(function):
        if isinstance(item, ast.ExceptHandler) and item.name and item.type:
            kind = ast.unparse(item.type)
            known = types.setdefault(item.name, kind)
            assert known == kind, f"{function.name}: {item.name} is {known} and {kind}"


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the numbered lines in which a pattern is found that matches inside a line only."""
    if not pattern.search(text):
        return []
    lines = enumerate(text.splitlines(), 1)
    return [f"line {number}: {line.strip()}" for number, line in lines if pattern.search(line)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tidy(path: Path) -> None:
    text = path.read_text()
    tree = parsed(path)
    used = imports_of(path)
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[:2] == ("cluster", "beanpole"):
        check_library(parts[2], used)
    if parts[0] in ("cluster", "node", "pipeline") and parts[2:4] != ("replication", "pysyncobj"):
        assert "pysyncobj" not in tops(used), "only replication/pysyncobj knows the library"
    if parts[0] == "pipeline":
        assert "beanpoled" not in tops(used), "Spark's machines have no daemon"
    if tree.body:
        assert ast.get_docstring(tree), "the head of a file says what belongs there"
    lines = text.splitlines()
    assert len(lines) <= FILE_LINES_MAX, f"{len(lines)} lines in one file"
    compiled = any(fnmatch("/".join(path.parts[-len(parts) + 1 :]), one) for one in MODULES)
    for item in statements(tree):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (item.end_lineno or item.lineno) - item.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{item.name}: {length} lines"
            if compiled:
                check_error_names(item)
    assert not (found := lines_with(UNFINISHED, text)), f"unfinished: {found}"
    if parts[0] == "tests":
        assert not (found := lines_with(SLEEP, text)), f"a test waits for a condition: {found}"


@pytest.mark.parametrize("path", C_SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tidy_c(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("/*"), "the head of a file says what belongs there"
    assert len(lines) <= FILE_LINES_MAX, f"{len(lines)} lines in one file"
    for number, line in enumerate(lines, 1):
        assert len(line) <= COLUMNS_MAX, f"line {number}: {len(line)} columns"
        assert not UNFINISHED.search(line), f"line {number}: unfinished: {line.strip()}"


def constants_replaced(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the modules, as the test names them, whose constants it replaces."""
    return {
        ast.unparse(item.args[0])
        for item in ast.walk(function)
        if isinstance(item, ast.Call)
        and ast.unparse(item.func) == "monkeypatch.setattr"
        and isinstance(item.args[1], ast.Constant)
        and str(item.args[1].value).isupper()
    }


def is_compiled(module: str) -> bool:
    return any(fnmatch(module.replace(".", "/") + ".py", one) for one in MODULES)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_replace_a_compiled_constant_are_marked(path: Path) -> None:
    """Compiled code has its constants built in, so such a test cannot run on it."""
    if "setattr" not in path.read_text():
        return
    tree = parsed(path)
    known = {
        alias.asname or alias.name: f"{item.module}.{alias.name}"
        for item in statements(tree)
        if isinstance(item, ast.ImportFrom) and item.module
        for alias in item.names
    }
    for item in statements(tree):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name[:5] == "test_":
            compiled = [one for one in constants_replaced(item) if is_compiled(known.get(one, ""))]
            marks = [ast.unparse(one) for one in item.decorator_list]
            assert not compiled or "pytest.mark.constants" in marks, (item.name, compiled)


def inherited(path: Path) -> set[str]:
    """Return the dotted names of the classes in other modules that those of a file inherit from."""
    tree = parsed(path)
    origins = {
        alias.asname or alias.name: f"{item.module}.{alias.name}"
        for item in statements(tree)
        if isinstance(item, ast.ImportFrom)
        for alias in item.names
    }
    found: set[str] = set()
    for item in tree.body:
        for base in item.bases if isinstance(item, ast.ClassDef) else ():
            first, *more = ast.unparse(base).partition("[")[0].split(".")
            found.add(".".join([origins.get(first, first), *more]))
    return found


def test_nothing_interpreted_inherits_from_what_is_compiled() -> None:
    """Instantiating such a class fails, and only then; errors are exempt, as their base is in C."""
    for path in SOURCES:
        ours = path.relative_to(ROOT).parts[0] in ("cluster", "node", "pipeline")
        if ours and (not is_compiled(module_of(path)) or path.stem == "__init__"):
            compiled = {one for one in inherited(path) if is_compiled(one.rpartition(".")[0])}
            wrong = {one for one in compiled if not one.startswith("beanpole.errors.")}
            assert not wrong, f"{module_of(path)} inherits from {wrong}"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of one of our packages."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the imports of each module of our packages from our packages, types included."""
    folders = [ROOT / folder for folder in ("cluster", "node", "pipeline")]
    paths = [path for path in SOURCES if any(map(path.is_relative_to, folders))]
    modules = {module_of(path) for path in paths}
    graph: dict[str, set[str]] = {}
    for path in paths:
        used = graph[module_of(path)] = set()
        for name in imports_of(path):
            used.add(name if name in modules else name.rpartition(".")[0])
        used &= modules
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or none."""
    done: set[str] = set()

    def follow(way: list[str]) -> list[str]:
        for name in sorted(graph[way[-1]] - done):
            if name in way:
                return [*way[way.index(name) :], name]
            if found := follow([*way, name]):
                return found
        done.add(way[-1])
        return []

    return next((found for name in sorted(graph) if (found := follow([name]))), [])


def test_no_imports_go_in_a_circle() -> None:
    circle = circle_in(import_graph())
    assert not circle, f"imports in a circle: {' -> '.join(circle)}"


def layer_of(module: str, layers: tuple[tuple[str, ...], ...]) -> int:
    """Return the layer of a module, or -1."""
    found = [
        (len(name), number)
        for number, names in enumerate(layers)
        for name in names
        if f"{module}.".startswith(f"{name}.")
    ]
    return max(found, default=(0, -1))[1]


@pytest.mark.parametrize("package", ORDER)
def test_no_import_runs_back_up(package: str) -> None:
    layers = ORDER[package]
    for name, used in import_graph().items():
        layer = layer_of(name, layers)
        assert layer >= 0 or not name.startswith(f"{package}."), f"{name} has no place in ORDER"
        for other in sorted(used):
            upwards = 0 <= layer < layer_of(other, layers)
            assert not upwards, f"{name} imports {other}, which stands above it"


def test_circles_and_their_absence_are_seen() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_every_statement_is_visited() -> None:
    """Compare the short way through a tree with the long one, in all files of one package."""
    code = (
        "try:\n a = 1\nexcept* E:\n import b\nelse:\n import c\nfinally:\n import d\n"
        "match x:\n case 1:\n  import e\nwith f:\n  import g\nwhile h:\n pass\nelse:\n import i\n"
        "async def j():\n async for k in l:\n  import m\n async with n:\n  import o\n"
    )
    paths = [path for path in SOURCES if "frontends" in path.parts]
    assert len(paths) > 10
    kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
    for tree in (ast.parse(code), *map(parsed, paths)):
        long_way = [item for item in ast.walk(tree) if isinstance(item, kinds)]
        visited = list(statements(tree))
        assert len(visited) == len(long_way) and set(visited) == set(long_way)


def test_unfinished_work_is_found_in_its_line() -> None:
    unfinished = "TO" + "DO"
    assert lines_with(UNFINISHED, f"a = 1\n  b = 2  # {unfinished} later\n") == [
        f"line 2: b = 2  # {unfinished} later"
    ]
    assert lines_with(UNFINISHED, "a = 1\n") == []


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 1000 and len(UNITS) > 200 and C_SOURCES
    assert all(any(fnmatch(str(path), f"*/{one}") for path in SOURCES) for one in MODULES)
