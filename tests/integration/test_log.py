"""A real node whose log takes no line: its standard error is a pipe that is not read."""

import os
import re
import signal
import subprocess
from pathlib import Path

import grpc
import pytest

from beanpole.client.rpc import Nodes
from beanpole.pb import node_admin_pb2, node_admin_pb2_grpc
from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import STOP_TIMEOUT_S
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 20.0
# A refused reload logs a line about as long as the wrong value, and gRPC takes such an error.
LINE_BYTES = 5_000
# Twice as much as a pipe, 64 KiB, and the lines that wait for it, 1 MiB, have room for.
RELOADS = 480
LOST = re.compile(rb"n0 warning: (\d+) lines are lost: this log did not take them\n")


def wait_for_line(read: int, wanted: re.Pattern[bytes]) -> bytes:
    """Read the pipe up to a line, and return all of it."""
    found = b""
    while not wanted.search(found):
        more = os.read(read, 65536)
        assert more, found[-2000:]
        found += more
    return found


def test_a_node_serves_while_its_log_is_not_read(tmp_path: Path) -> None:
    """The loop waited for the pipe: no answer at any port, until the log was read."""
    cluster = Cluster(tmp_path / "cluster", count=1)
    (node,) = cluster.nodes
    read, write = os.pipe()
    with subprocess.Popen(cluster.command(0), stdin=subprocess.DEVNULL, stderr=write) as process:
        try:
            os.close(write)
            wait_until(
                lambda: http_get(node.http, "/readyz")[0] == 200, START_TIMEOUT_S, "it is ready"
            )
            path = node.directory / "node.toml"
            path.write_text(f'log_level = "{"x" * LINE_BYTES}"\n{path.read_text()}')
            with Raw(node.beanstalk, ANSWER_TIMEOUT_S) as client, Nodes([node.grpc]) as nodes:
                stub = node_admin_pb2_grpc.NodeAdminStub(nodes.channel(node.grpc))
                for _ in range(RELOADS):
                    # No signals: those that follow each other closely become one.
                    with pytest.raises(grpc.RpcError, match="log_level"):
                        stub.Reload(node_admin_pb2.ReloadRequest(), timeout=ANSWER_TIMEOUT_S)
                    assert http_get(node.http, "/livez", ANSWER_TIMEOUT_S)[0] == 200
                    client.put(b"x")
                found = wait_for_line(read, LOST)
                lost = LOST.search(found)
                assert lost is not None
                written = found.count(b" n0 warning: not reloaded: ")
                assert written * LINE_BYTES > 1024 * 1024
                assert 0 < RELOADS - written - 1 <= int(lost[1]) <= RELOADS - written
                for _ in range(RELOADS):
                    process.send_signal(signal.SIGHUP)  # their lines are not read either
                    assert http_get(node.http, "/livez", ANSWER_TIMEOUT_S)[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_TIMEOUT_S) == 0
        finally:
            process.kill()
            os.close(read)
            cluster.close()
