"""The places that docs/architecture.md names exist, and its table of the daemon is complete.

A place is `folder/file.Class.method`, as the page explains under "How places are written". Names
without a file, after an arrow or a comma, are not checked here.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_tidy import ORDER

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
PACKAGES = (ROOT / "node/beanpoled", ROOT / "cluster/beanpole")
_PLACE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+(?:\.(?:py|c)\b)?)((?:\.[A-Za-z_]+)*)`")
# The daemon's table has a line for each package or module: "| 4 | `leading/term` | ... |".
_ROW = re.compile(r"^\| \d \| (.*?) \|", re.MULTILINE)
# The entries of programs, which hold nothing else.
_ENTRIES = {"beanpoled.__main__"}


@cache
def _tree(path: str) -> ast.Module | None:
    """Return a module of the product; None if the path is a folder, or of another part."""
    for package in PACKAGES:
        file = package / f"{path}.py"
        if file.exists():
            return ast.parse(file.read_text())
    return None


@cache
def _names(body: ast.AST) -> set[str]:
    """Return the names that a module or a class binds, with the attributes of its objects."""
    found: set[str] = set()
    for item in ast.walk(body):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(item.name)
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            found.add(item.id)
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            found.add(item.attr)
    return found


@cache
def _classes(body: ast.AST) -> dict[str, ast.ClassDef]:
    """Return the classes in a module or a class by their names."""
    return {item.name: item for item in ast.walk(body) if isinstance(item, ast.ClassDef)}


def _missing() -> Iterator[str]:
    """Yield the places that do not exist."""
    for path, names in _PLACE.findall(PAGE):
        scope: ast.AST | None = _tree(path)
        if scope is None:
            parts = (*PACKAGES, ROOT, ROOT / "pipeline")
            if not any((part / name).exists() for part in parts for name in (path, f"{path}.py")):
                yield path
            continue
        for name in names.split(".")[1:]:
            if scope is None or name not in _names(scope):
                yield path + names
                break
            scope = _classes(scope).get(name)


def test_every_place_exists() -> None:
    assert len(_PLACE.findall(PAGE)) > 300
    assert sorted(set(_missing())) == []


def test_every_package_of_the_daemon_is_in_the_table() -> None:
    words = " ".join(_ROW.findall(PAGE))
    names = {name for row in ORDER["beanpoled"] for name in row} - _ENTRIES
    listed = {
        name for name in names if f"`{name.removeprefix('beanpoled.').replace('.', '/')}" in words
    }
    assert sorted(names - listed) == []
    for folder in ("turn", "frontends", "leading", "origin"):
        for file in (PACKAGES[0] / folder).glob("[a-z]*.py"):
            assert f"`{file.stem}`" in PAGE or f"{folder}/{file.stem}" in PAGE, file.name
