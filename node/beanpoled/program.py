"""The identity of this program: its version, its kind, and the compiled tree of a clone.

`deploy/compile.py` builds a tree, and writes the mark when the tree is complete.
"""

import filecmp
import importlib.machinery
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import beanpole
import beanpoled
from beanpole.core import machine

MARK: Final = ".ready"
COMPILER: Final = "deploy/compile.py"
PACKAGES: Final = (beanpole, beanpoled)


def is_compiled() -> bool:
    """Whether the modules on the path of a command are extension modules."""
    return not machine.__file__.endswith(".py")


def words() -> str:
    """Return version and kind, as `beanpole version` prints them."""
    return f"{beanpole.VERSION}, {'compiled' if is_compiled() else 'not compiled'}"


def compiled_tree() -> tuple[Path | None, str]:
    """Find a compiled copy of this very program, which nodes can run in its place.

    Returns:
        The folder for PYTHONPATH, and a message about it: empty if no tree can be expected, because
        this program is compiled or is not a clone.
    """
    clone = Path(beanpoled.__file__).parents[2]
    if is_compiled() or not (clone / COMPILER).exists():
        return None, ""
    tree = clone / "build" / "compiled"
    if not (tree / MARK).exists():
        return None, "the nodes are not compiled: `make compiled` builds faster ones"
    if not _is_fresh(tree, clone):
        return None, f"the nodes are not compiled: {tree} has other sources; run `make compiled`"
    return tree, f"the nodes are those of {tree}"


def _sources(package: Path) -> Iterator[Path]:
    return (path for kind in ("*.py", "*.c") for path in package.rglob(kind))


def _is_fresh(tree: Path, clone: Path) -> bool:
    """Whether a tree was built for this interpreter from the present sources.

    The mark is a copy of the build program, which contains the list of compiled modules.
    """
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    if not (tree / "beanpole" / "core" / f"machine{suffix}").exists():
        return False
    if (tree / MARK).read_bytes() != (clone / COMPILER).read_bytes():
        return False
    for package in PACKAGES:
        sources = Path(package.__path__[0])
        names = [path.relative_to(sources) for path in _sources(sources)]
        copy = tree / sources.name
        if len(names) != sum(1 for _ in _sources(copy)):
            return False
        if not all(
            (copy / name).exists() and filecmp.cmp(sources / name, copy / name, shallow=False)
            for name in names
        ):
            return False
    return True
