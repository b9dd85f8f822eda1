"""`beanpole top` against three real nodes: through a follower, and while the leader is dead."""

import json
import os
import pty
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import greenstalk

from beanpole.addresses import split_address
from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
JOBS = 30


def top(addresses: Sequence[str]) -> dict[str, Any]:
    line = [*BEANPOLE, "top", "--json", "--addr", ",".join(addresses)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_through_a_follower_and_without_the_leader(cluster: Cluster) -> None:
    _, (one, other) = cluster.roles()
    nodes = cluster.nodes
    # A node does not count the events from before its first look at them.
    wait_until(lambda: top([nodes[other].grpc])["lately_s"] > 0, TIMEOUT_S, "the follower looks")
    with greenstalk.Client(split_address(nodes[one].beanstalk), use="mail", watch="mail") as client:
        for _ in range(JOBS):
            client.put("x")
        job = client.reserve(timeout=5)
        client.delete(job)
        client.bury(client.reserve(timeout=5))
        wanted = {"ready": JOBS - 2, "reserved": 0, "delayed": 0, "buried": 1, "kept": 0}

        def seen() -> dict[str, Any] | None:
            """Return a follower's report once it has seen all of these events."""
            said = top([nodes[other].grpc])
            queue = next((q for q in said["queues"] if q["name"] == "mail"), None)
            if queue is None or queue["jobs"] != wanted:
                return None
            # A look at the events may come between the delete and the bury.
            ran = queue["run"] is not None and queue["run"]["count"] == 2
            return said if ran and said["leader"] == f"n{cluster.leader()}" else None

        # Rates are those of the last seconds, so this report is the one that is checked.
        said = wait_until(seen, TIMEOUT_S, "figures at a follower")
        assert said is not None
        (queue,) = said["queues"]
        assert said["node"] == f"n{other}"
        assert queue["ready_age_s"] > 0 and queue["puts_per_s"] > 0
        assert (queue["wait"]["count"], queue["run"]["count"]) == (2, 2)
        leader = cluster.leader()
        cluster.kill(leader)
        left = next(number for number in (one, other) if number != leader)

        def without_the_leader() -> dict[str, Any] | None:
            """Return a report of both: a node waits only 1 s for another."""
            # The first address is the killed leader's, so the next node answers.
            said = top([nodes[leader].grpc, nodes[left].grpc])
            up = [node["id"] for node in said["nodes"] if node["reachable"]]
            return said if len(up) == 2 else None

        said = wait_until(without_the_leader, TIMEOUT_S, "a report of both")
        assert said is not None
        assert said["queues"][0]["jobs"] == wanted


def test_it_is_drawn_again_in_a_terminal_until_ctrl_c(shared: Cluster) -> None:
    """A real terminal: the second screen has the nodes' rates, and Ctrl-C leaves no traceback."""
    ours, its = pty.openpty()
    # A background job of a shell ignores SIGINT, and its children would inherit that.
    line = ["env", "--default-signal=INT", *BEANPOLE, "top", "--interval", "0.5"]
    line += ["--addr", shared.nodes[0].grpc]
    environment = {**os.environ, "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        line, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True
    )
    os.close(its)
    text = b""
    try:
        while text.count(b"commands/s") < 3:
            part = os.read(ours, 65536)
            assert part, text
            text += part
        process.send_signal(2)
        # Unless the terminal is read, the process would block on its last output.
        with suppress(OSError):
            while part := os.read(ours, 65536):
                text += part
        assert process.wait(TIMEOUT_S) == 130, text
    finally:
        process.kill()
        os.close(ours)
    assert b"Traceback" not in text
