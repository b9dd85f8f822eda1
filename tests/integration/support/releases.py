"""Programs that a node can run: this one, and earlier releases from the wheels of tests/fixtures.

A release runs from a folder of its own with the dependencies that are installed here; no module of
this version stands beside its own. When nodes change their programs is the business of the tests.
"""

import os
import shlex
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.integration.support.nodes import BEANPOLED, Cluster, Settings, status, toml_lines
from tests.integration.support.waiting import wait_until

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
# The first release that can be upgraded from, and the last one.
FIRST: Final = "0.2.0"
LAST: Final = "0.3.0"
# The newest machine version that each knows, which its nodes work at by themselves.
KNOWS: Final = {FIRST: 2, LAST: 3}
RAISED_S: Final = 20.0


class Program(NamedTuple):
    """A program of a node.

    Attributes:
        name: names the configuration that it gets, too.
        words: the command line before the arguments of beanpoled.
        settings: what only this program's configuration has.
    """

    name: str
    words: Sequence[str]
    settings: Settings


def release(version: str, directory: Path) -> Program:
    """Unpack a release into a folder, for this one and for all nodes."""
    place = directory / f"beanpole-{version}"
    with zipfile.ZipFile(FIXTURES / f"beanpole-{version}-py3-none-any.whl") as wheel:
        wheel.extractall(place)
    # Before all other places, and -P leaves the working directory out.
    path = ["env", f"PYTHONPATH={place}"]
    return Program(version, [*path, sys.executable, "-P", "-m", "beanpoled"], {})


def this_program(settings: Mapping[str, object], prefix: Sequence[str] = ()) -> Program:
    """The program of this tree, with its own settings; `prefix`: what stands before python."""
    return Program("new", [*prefix, *BEANPOLED], settings)


def cluster_of(program: Program, directory: Path) -> Cluster:
    """Three nodes that run a program, not started. They keep no events: upgrades under load do."""
    cluster = Cluster(directory, settings={"events": "off"})
    for number in range(len(cluster.nodes)):
        install(cluster, number, program)
    return cluster


def versions(cluster: Cluster) -> list[tuple[Any, Any]]:
    """The active version of each node, and the one that its program knows."""
    nodes = status(cluster.nodes[cluster.leader()])["nodes"]
    return [(node.get("machine_version"), node.get("machine_version_known")) for node in nodes]


def wait_until_raised(cluster: Cluster, version: int) -> None:
    """Wait until all nodes work at what their programs know."""
    wanted = [(version, version)] * len(cluster.nodes)
    wait_until(lambda: versions(cluster) == wanted, RAISED_S, f"all work at {version}")


def install(cluster: Cluster, number: int, program: Program, prefix: Sequence[str] = ()) -> None:
    """Let the next starts of a node run this program; a node that runs goes on with the old one."""
    directory = cluster.nodes[number].directory
    text = (directory / "node.toml").read_text()
    path = directory / f"{program.name}.toml"
    # Settings stand before the first table.
    path.write_text("\n".join([*toml_lines(program.settings), text]))
    command = shlex.join([*prefix, *program.words, "--config", str(path)])
    # Somebody may read it at this moment, to start the node.
    written = directory / "cmdline.new"
    written.write_text(command + "\n")
    os.replace(written, directory / "cmdline")


def upgrade(cluster: Cluster, number: int, program: Program) -> None:
    """Stop a node, install a program, start it, and wait until it serves."""
    cluster.terminate(number)
    install(cluster, number, program)
    cluster.start(number)
    cluster.wait_until_serving(number)
