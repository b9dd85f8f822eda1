"""redis-py with RESP2 and RESP3, and redis-cli: a job's life and its published messages."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence

import pytest

from tests.integration.support.raw import Address
from tests.qless.suites import OWN, PYTHON, REQLESS, Place, environment

SCRIPT = REQLESS / "reqless" / "lua" / "qless.lua"
TIMEOUT_S = 60
HEARD = [
    ["ql:log", {"jid": "j", "event": "put", "queue": "q"}],
    ["ql:track", "j"],
    ["ql:popped", "j"],
    ["ql:completed", "j"],
    ["ql:log", {"jid": "j", "event": "completed", "queue": "q"}],
    ["ql:untrack", "j"],
]


def run(command: Sequence[str], text: str = "") -> str:
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(REQLESS),
    )
    assert done.returncode == 0, f"{command}: {done.stderr}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_redis_py(place: Place, protocol: str) -> None:
    urls = [f"redis://{address}" for address in place]
    program = [str(PYTHON), str(OWN / "talking.py")]
    found = json.loads(run([*program, *urls, protocol, str(SCRIPT)]))
    error, heard = found.pop("error"), found.pop("heard")
    assert found == {
        "ping": True,
        "put": "j",
        "track": "1",
        "popped": ["j"],
        "heartbeat": 63,
        "complete": "complete",
        "none": None,
        "run": 1,
        "next": 6.0,
    }
    assert "Heartbeat(): Job not currently running: complete" in error
    parsed = [[channel, json.loads(data) if data[0] == "{" else data] for channel, data in heard]
    assert parsed == HEARD


def cli(address: Address, *words: str, resp: str = "-2", text: str = "") -> str:
    host, _, port = address.rpartition(":")
    program = shutil.which("redis-cli")
    assert program, "redis-cli is not installed (Debian: apt-get install redis-tools)"
    return run([program, resp, "-h", host, "-p", port, *words], text).strip()


@pytest.mark.parametrize("resp", ["-2", "-3"])
def test_redis_cli(place: Place, resp: str) -> None:
    sha = cli(place.address, "-x", "SCRIPT", "LOAD", resp=resp, text=SCRIPT.read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", sha)

    def call(*words: str) -> str:
        return cli(place.address, "EVALSHA", sha, "0", *words, resp=resp)

    assert call("put", "1", "w", "q", "j", "K", "{}", "0") == "j"
    assert '"jid":"j"' in call("pop", "2", "q", "worker", "1")
    assert call("complete", "3", "j", "worker", "q", "{}") == "complete"
    assert json.loads(call("stats", "4", "q", "4"))["run"]["mean"] == 1
    assert call("get", "5", "nothing") == ""
    assert "Must provide a command" in cli(place.address, "EVALSHA", sha, "0", resp=resp)
    assert cli(place.address, "PING", resp=resp) == "PONG"
    assert cli(place.address, "FLUSHDB", resp=resp) == "OK"
