"""Upgrade three real nodes of the last release to this program under load.

This is one upgrade without kills; `make upgrade MINUTES=n` makes many with kills. The steps and
checks are in chaos/upgrade.py; an upgrade without load, step by step, is in `test_upgrade`.
"""

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from beanpole import VERSION
from beanpole.commands import MACHINE_VERSION
from beanpoled.eventlog import columns
from chaos.members import beanpole
from chaos.upgrade import Upgrade
from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.processes import START_TIMEOUT_S
from tests.integration.support.raw import Raw
from tests.integration.support.releases import (
    FIRST,
    KNOWS,
    LAST,
    Program,
    cluster_of,
    finalize,
    install,
    release,
    this_program,
    upgrade,
    wait_until_raised,
)
from tests.integration.support.waiting import wait_until

# The command line tool of the release in the path.
COMMAND = "import sys; from beanpoled.cli import main; sys.exit(main())"


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_upgrade_under_load(tmp_path: Path) -> None:
    """Upgrade, go back, upgrade and finalize: nothing is lost, clients of other nodes see no error.

    The upgrade that an operator finalizes is a part of `make test-rounds`.
    """
    seed = random.SystemRandom().randrange(2**32)
    told: list[str] = [f"seed {seed}"]
    run = Upgrade(tmp_path, seed, 0, told.append, manual=False)
    good = run.run()
    story = "\n".join([*told, *run.figures, *run.findings])
    sys.stdout.write(story + "\n")
    assert good, f"python -m chaos.upgrade --seed {seed}\n{story}"


@pytest.fixture(params=[FIRST, LAST])
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    return release(request.param, tmp_path)


@pytest.fixture
def cluster(tmp_path: Path, old: Program) -> Iterator[Cluster]:
    """Three nodes of the release, not started."""
    cluster = cluster_of(old, tmp_path / "cluster")
    try:
        yield cluster
    finally:
        cluster.close()


def test_a_release_runs_without_the_modules_of_this_version(old: Program, tmp_path: Path) -> None:
    code = "import sys, beanpole, beanpoled.main as main; print(beanpole.__file__, main.__file__)"
    python = [*old.words[: old.words.index("-m")], "-c", code]
    shown = subprocess.run(python, capture_output=True, text=True, check=True)
    assert all(path.startswith(str(tmp_path)) for path in shown.stdout.split()), shown.stdout
    said = subprocess.run([*old.words, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"beanpoled {old.name}\n"


@pytest.mark.parametrize("old", [FIRST], indirect=True)
def test_the_first_release_refuses_a_later_setting(cluster: Cluster, old: Program) -> None:
    """An operator removes the setting before going back, as docs/operating.md says."""
    install(cluster, 0, old._replace(settings={"upgrade_finalize": "manual"}))
    process = cluster.start(0)
    assert process.wait(START_TIMEOUT_S) == 1
    assert "unknown key 'upgrade_finalize'" in process.log.read_text()


def test_status_shows_the_programs_of_both_releases(cluster: Cluster, old: Program) -> None:
    """Every node reports them, to the commands of both releases."""
    cluster.start_all()
    before = KNOWS[old.name]
    wait_until_raised(cluster, before)
    new = this_program({"upgrade_finalize": "manual"})
    changed = cluster.followers()[0]
    upgrade(cluster, changed, new)
    with Raw(cluster.nodes[changed].beanstalk) as client:
        client.put(b"by way of the upgraded node")
    wanted = {
        f"n{number}": (VERSION, f"{before} (knows {MACHINE_VERSION})", "serving")
        if number == changed
        else (old.name, f"{before}", "serving")
        for number in range(3)
    }
    of_old = [*old.words[: old.words.index("-m")], "-c", COMMAND]

    def right() -> bool:
        for node, program in itertools.product(cluster.nodes, (BEANPOLE, of_old)):
            failed, words = beanpole("status", "--addr", node.grpc, program=program)
            nodes = words.partition("\nprotocol")[0]  # release 0.3.0 prints nothing about protocols
            rows = [line.split() for line in nodes.splitlines()[2:]]
            told = {row[0]: (row[9], " ".join(row[10:-1]), row[-1]) for row in rows}
            if failed or told != wanted:
                return False
        return True

    wait_until(right, START_TIMEOUT_S, "all say the same")


@pytest.mark.parametrize("old", [FIRST], indirect=True)
def test_nothing_is_raised_while_nodes_run_the_first_release(
    cluster: Cluster, old: Program
) -> None:
    cluster.start_all()
    changed = cluster.followers()[0]
    upgrade(cluster, changed, this_program({"upgrade_finalize": "manual"}))
    for number in range(len(cluster.nodes)):
        refused, words, leader = finalize(cluster, number)
        assert refused == 3
        leads = f"the program of n{leader}, which leads, is too old"
        assert (leads if number == changed else "UNIMPLEMENTED") in words


@pytest.mark.parametrize("old", [LAST], indirect=True)
def test_the_export_of_the_last_release_reads_until_the_raise(tmp_path: Path, old: Program) -> None:
    """Nodes of this program send the column `host` only after the upgrade is final."""
    cluster = Cluster(tmp_path / "cluster", settings={"upgrade_finalize": "manual"})
    of_old = [*old.words[: old.words.index("-m")], "-c", COMMAND]
    with cluster.running():
        addresses = ",".join(node.grpc for node in cluster.nodes)
        export = ("events", "export", "--addresses", addresses, "--to", str(tmp_path / "out"))
        with Raw(cluster.nodes[0].beanstalk) as client:
            client.put(b"before")
        assert beanpole(*export, program=of_old)[0] == 0
        done, words = beanpole("cluster", "finalize", "--addr", cluster.nodes[0].grpc)
        assert done == 0, words
        wait_until_raised(cluster, MACHINE_VERSION)
        with Raw(cluster.nodes[0].beanstalk) as client:
            client.put(b"after")
        failed, words = beanpole(*export, program=of_old)
        assert failed == 3
        assert "a node sends other columns than this program knows" in words
        done, words = beanpole(*export, program=BEANPOLE)
        assert done == 0, words
    exported = pq.read_table(tmp_path / "out", schema=columns.schema()).sort_by("offset")
    assert exported["host"].to_pylist() == [None, "127.0.0.1"]
