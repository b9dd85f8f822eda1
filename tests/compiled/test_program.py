"""The compiled tree of a clone: the conditions for `beanpole up` to use it, and its reasons."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process

ROOT: Final = Path(__file__).resolve().parents[2]
FIND: Final = "from beanpoled import program; print(*program.compiled_tree(), sep='|')"
SOURCE: Final = "node/beanpoled/main.py"
SYNCER: Final = "cluster/beanpole/storage/syncer.c"
ADDED: Final = "node/beanpoled/added.py"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the parts of this clone that matter here."""
    for part in ("cluster/beanpole", "node/beanpoled", "build/compiled", "deploy"):
        # The times of files must not matter, because a checkout changes them.
        shutil.copytree(ROOT / part, tmp_path / part, copy_function=shutil.copyfile)
    return tmp_path


def environment(clone: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{clone / 'cluster'}{os.pathsep}{clone / 'node'}"}


def found(clone: Path) -> list[str]:
    command = [sys.executable, "-c", FIND]
    done = subprocess.run(
        command, env=environment(clone), capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split("|")


def test_a_fresh_tree_is_taken(clone: Path) -> None:
    tree = clone / "build" / "compiled"
    assert found(clone) == [str(tree), f"the nodes are those of {tree}"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda clone: (clone / SOURCE).write_text((clone / SOURCE).read_text() + "\n"), "other"),
        (lambda clone: (clone / ADDED).write_text(""), "other"),
        (lambda clone: (clone / SYNCER).write_text("int other;\n"), "other"),
        (lambda clone: (clone / "deploy/compile.py").write_text("other"), "other"),
        (lambda clone: (clone / "build/compiled/.ready").unlink(), "builds faster ones"),
        (lambda clone: shutil.rmtree(clone / "build"), "builds faster ones"),
    ],
    ids=["changed", "added", "c", "compiler", "unfinished", "none"],
)
def test_another_tree_is_not_taken(
    clone: Path, change: Callable[[Path], object], words: str
) -> None:
    change(clone)
    tree, said = found(clone)
    assert tree == "None" and words in said and "make compiled" in said


@pytest.mark.parametrize(("flags", "kind"), [([], "compiled"), (["--sources"], "not compiled")])
def test_up_runs_what_it_says(tmp_path: Path, flags: list[str], kind: str) -> None:
    places = ["--dir", str(tmp_path / "q"), "--base-port", str(free_block())]
    command = [*BEANPOLE, "up", "--nodes", "1", *places, *flags]
    up = Process(command, tmp_path / "up.log", environment(ROOT))
    try:
        up.wait_for_text("ready")
        assert ("the nodes are those of" in up.log.read_text()) == (not flags)
        log = (tmp_path / "q" / "n0" / "log").read_text()
        assert f", {kind}\n" in log and "starting" in log
    finally:
        up.kill()
