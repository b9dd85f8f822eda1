"""A node whose look-ups of peer names outlast its dials: it keeps running, one look-up a name."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import START_TIMEOUT_S
from tests.integration.support.waiting import wait_until

SHIM = Path(__file__).with_name("support") / "slow_names.c"
SLOW = "slow.test:11310"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    dial = {0: {"n1": SLOW, "n2": SLOW}}
    found = Cluster(tmp_path / "nodes", dial=dial)
    yield found
    found.close()


def test_a_slow_look_up_does_not_end_a_node(cluster: Cluster, tmp_path: Path) -> None:
    library, notes = tmp_path / "slow_names.so", tmp_path / "notes"
    notes.touch()
    compile_it = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SHIM)]
    subprocess.run([*compile_it, "-ldl"], check=True)
    node = cluster.nodes[0]
    shim = ["env", f"LD_PRELOAD={library}", f"SLOW_NAMES_FILE={notes}"]
    command = node.directory / "cmdline"
    command.write_text(shlex.join([*shim, *cluster.command(0)]) + "\n")
    process = cluster.start(0)

    def asked_again() -> bool:
        assert process.status() is None, process.story()
        # Both look-ups have ended after their dials, and each has been started again.
        told = notes.read_text()
        assert told.count("b") - told.count("e") <= 2, "a look-up was begun beside its like"
        return told.count("e") >= 2 and told.count("b") >= 4

    wait_until(asked_again, START_TIMEOUT_S, "names that are looked up again")
    assert http_get(node.http, "/livez")[0] == 200, process.story()
    assert process.terminate() == 0, process.story()
