"""Both wheels as a user installs them: into an empty environment, without a compiler.

`make test-wheel` builds them first. Their speed is measured by `python -m bench quick --installed`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process
from tests.integration.support.raw import Raw

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"
COMPILED: Final = "compiled"
PURE: Final = "pure"
# pip fetches the dependencies, about 100 MB without a cache.
INSTALL_TIMEOUT_S: Final = 600

pytestmark = pytest.mark.timeout(INSTALL_TIMEOUT_S)


def wheel(kind: str) -> Path:
    found = [path for path in DIST.glob("beanpole-*.whl") if is_pure(path) == (kind == PURE)]
    assert len(found) == 1, f"{found}: run `make wheel`"
    return found[0]


def test_the_page_installs_one_wheel() -> None:
    """pip refuses a pattern that matches both wheels, which have the same version."""
    page = (ROOT / "docs" / "deploying.md").read_text()
    patterns = re.findall(r"pip install (beanpole-\S*\*\S*\.whl)", page)
    assert patterns, "the section for systemd has one"
    for pattern in patterns:
        assert list(DIST.glob(pattern)) == [wheel(COMPILED)], pattern


def is_pure(path: Path) -> bool:
    return path.name.endswith("-none-any.whl")


class Installed(NamedTuple):
    """A wheel in a separate environment."""

    kind: str
    programs: Path

    def run(self, *line: str) -> str:
        command = [str(self.programs / line[0]), *line[1:]]
        done = subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """Return variables without paths of this clone and of compilers."""
        return {"PATH": str(self.programs), "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module", params=[COMPILED, PURE])
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp(request.param)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    # This path has no compiler.
    environment = {**os.environ, "PATH": str(place / "bin")}
    words = [*pip, "--disable-pip-version-check", str(wheel(request.param))]
    subprocess.run(words, check=True, env=environment)
    yield Installed(request.param, place / "bin")


def test_it_says_what_it_is(installed: Installed) -> None:
    words = "compiled" if installed.kind == COMPILED else "not compiled"
    assert installed.run("beanpole", "version").endswith(f", {words}\n")
    assert installed.run("beanpoled", "--version").endswith(f", {words}\n")


def test_three_nodes_keep_a_job(installed: Installed, tmp_path: Path) -> None:
    directory = tmp_path / "q"
    alone = ["env", "-i", *(f"{name}={value}" for name, value in installed.environment.items())]
    line = ["up", "--dir", str(directory), "--base-port", str(free_block())]
    program = str(installed.programs / "beanpole")
    up = Process([*alone, program, *line], tmp_path / "up.log")
    try:
        up.wait_for_text("ready")
        nodes = json.loads((directory / "cluster.json").read_text())["nodes"]
        with Raw(nodes[0]["beanstalk"]) as client:
            job = client.put(b"kept")
        with Raw(nodes[2]["beanstalk"]) as client:
            client.ask(b"reserve", b"RESERVED %d 4" % job, b"kept")
        words = "compiled" if installed.kind == COMPILED else "not compiled"
        assert f", {words}\n" in (directory / "n0" / "log").read_text()
        assert up.terminate() == 0
    finally:
        up.kill()


def test_what_is_measured_is_what_is_installed() -> None:
    """Each compiled module of the wheel equals that of the tree of `make compiled`."""
    tree = ROOT / "build" / "compiled"
    assert (tree / ".ready").exists(), "run `make compiled`"
    with zipfile.ZipFile(wheel(COMPILED)) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        differing = [name for name in modules if archive.read(name) != (tree / name).read_bytes()]
    in_tree = {str(path.relative_to(tree)) for path in tree.rglob("*.so")}
    assert not differing and set(modules) == in_tree and len(modules) > 100


@pytest.mark.parametrize("kind", [COMPILED, PURE])
def test_two_builds_have_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """The second build is in a folder with a longer name; it takes as long as `make wheel`."""
    clone = tmp_path / "another" / "place"
    for part in ("cluster", "node", "pipeline", "deploy", "typings"):
        shutil.copytree(ROOT / part, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(tmp_path), "."]
    environment = {**os.environ, "BEANPOLE_COMPILE": str(int(kind == COMPILED))}
    subprocess.run(command, cwd=clone, env=environment, check=True)
    first = wheel(kind)
    assert (tmp_path / first.name).read_bytes() == first.read_bytes()


def test_the_bill_of_materials_lists_what_is_installed() -> None:
    found = json.loads((DIST / "beanpole.cdx.json").read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "beanpole"
    names = {component["name"] for component in found["components"]}
    assert {"pysyncobj", "msgpack", "grpcio", "pyarrow", "uvloop"} <= names
    assert str(ROOT) not in (DIST / "beanpole.cdx.json").read_text()


@pytest.mark.parametrize("kind", [COMPILED, PURE])
def test_what_is_in_a_wheel(kind: str) -> None:
    names = zipfile.ZipFile(wheel(kind)).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith(".so") for name in names) == (kind == COMPILED)
    # Without it nodes work and report nothing, so a missing file would go unnoticed.
    assert any("/_syncer.cpython" in name for name in names) == (kind == COMPILED)
    assert not any(name.endswith((".c", ".toml", ".ini")) for name in names)
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    mypyc = {name for name in tops if name.endswith(".so")}
    assert tops - mypyc == {"beanpole", "beanpoled", "pyspark_beanpole"}
