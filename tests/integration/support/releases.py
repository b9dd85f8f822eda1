"""Programs that a node can run: this one, and earlier releases from the wheels of tests/fixtures.

A release runs from a folder of its own with the dependencies that are installed here, and sees no
module of this version. The tests decide when nodes change their programs.
"""

import os
import shlex
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chaos.members import beanpole
from tests.integration.support.nodes import BEANPOLED, Cluster, Settings, status, toml_lines
from tests.integration.support.waiting import wait_until

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
# The first release that can be upgraded from, and the last one.
FIRST: Final = "0.2.0"
LAST: Final = "0.3.0"
# The newest machine version of each, to which its nodes raise themselves.
KNOWS: Final = {FIRST: 2, LAST: 3}
RAISED_S: Final = 60.0


class Program(NamedTuple):
    """A program of a node.

    Attributes:
        name: also the name of its configuration file.
        words: the command line before the arguments of beanpoled.
        settings: settings that only this program's configuration has.
    """

    name: str
    words: Sequence[str]
    settings: Settings


def release(version: str, directory: Path) -> Program:
    """Unpack a release into a folder, which all nodes share."""
    place = directory / f"beanpole-{version}"
    with zipfile.ZipFile(FIXTURES / f"beanpole-{version}-py3-none-any.whl") as wheel:
        wheel.extractall(place)
    # The folder is first in the path, and -P leaves the working directory out.
    path = ["env", f"PYTHONPATH={place}"]
    return Program(version, [*path, sys.executable, "-P", "-m", "beanpoled"], {})


def this_program(settings: Mapping[str, object], prefix: Sequence[str] = ()) -> Program:
    """Return the program of this tree, with its own settings; `prefix`: words before python."""
    return Program("new", [*prefix, *BEANPOLED], settings)


def cluster_of(program: Program, directory: Path) -> Cluster:
    """Return three unstarted nodes with a program. They keep no events: upgrades under load do."""
    cluster = Cluster(directory, settings={"events": "off"})
    for number in range(len(cluster.nodes)):
        install(cluster, number, program)
    return cluster


def versions(cluster: Cluster) -> list[tuple[Any, Any]]:
    """Return the active version of each node, and the newest one that its program knows."""
    nodes = status(cluster.nodes[cluster.leader()])["nodes"]
    return [(node.get("machine_version"), node.get("machine_version_known")) for node in nodes]


def wait_until_raised(cluster: Cluster, version: int) -> None:
    """Wait until all nodes work at the newest version of their programs."""
    wanted = [(version, version)] * len(cluster.nodes)
    wait_until(lambda: versions(cluster) == wanted, RAISED_S, f"all work at {version}")


def finalize(cluster: Cluster, number: int) -> tuple[int, str, int]:
    """Run `beanpole cluster finalize` at a node; return its status, its output and the leader.

    On a busy machine an election may interrupt the command, which is then run again: the same node
    leads before and after it.
    """

    def answer() -> tuple[int, str, int] | None:
        leader = cluster.leader()
        failed, words = beanpole("cluster", "finalize", "--addr", cluster.nodes[number].grpc)
        if "ask again, there is none now" in words or cluster.leader() != leader:
            return None
        return failed, words, leader

    found = wait_until(answer, RAISED_S, "a leader answers")
    assert found is not None
    return found


def install(cluster: Cluster, number: int, program: Program, prefix: Sequence[str] = ()) -> None:
    """Let the next start of a node use a program; a running node continues with the old one."""
    directory = cluster.nodes[number].directory
    text = (directory / "node.toml").read_text()
    path = directory / f"{program.name}.toml"
    # Settings come before the first table.
    path.write_text("\n".join([*toml_lines(program.settings), text]))
    command = shlex.join([*prefix, *program.words, "--config", str(path)])
    # Another thread may read it at this moment, to start the node.
    written = directory / "cmdline.new"
    written.write_text(command + "\n")
    os.replace(written, directory / "cmdline")


def upgrade(cluster: Cluster, number: int, program: Program) -> None:
    """Stop a node, install a program, start it, and wait until it serves."""
    cluster.terminate(number)
    install(cluster, number, program)
    cluster.start(number)
    cluster.wait_until_serving(number)
