"""Abilities of some Gearman clients: administration, status by unique, jobs with a time-out."""

import os
import subprocess
from pathlib import Path

import gearman
import pytest

from tests.clients.harness import PYTHON, Place, Program
from tests.clients.libraries import DEBIAN, NPM_PROGRAMS
from tests.clients.matrix import TIMEOUT_S
from tests.clients.places import AGAINST_GEARMAND, Names
from tests.integration.support.gearmand import (
    CAN_DO,
    GRAB_JOB,
    JOB_ASSIGN,
    WORK_COMPLETE,
    Packets,
)
from tests.integration.support.waiting import wait_until

TOOL, PERL, PHP = DEBIAN
NODE = NPM_PROGRAMS[1]


def gearadmin(place: Place, *arguments: str) -> list[str]:
    """Run gearadmin; return the lines that it prints."""
    host, _, port = place.submitter.rpartition(":")
    command = ["gearadmin", "-h", host, "-p", port, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, done
    return (done.stdout + done.stderr).splitlines()


def rows(place: Place, option: str, function: str) -> list[list[str]]:
    """Return the rows of a function in a table of gearadmin."""
    *found, dot = gearadmin(place, option)
    assert dot == ".", found
    return [row.split("\t")[1:] for row in found if row.split("\t")[0] == function]


def test_gearadmin_counts_jobs(place: Place, fresh: Names, tmp_path: Path) -> None:
    name = fresh("counted")
    function = f"{name}-wait"
    assert rows(place, "--status", function) == []
    gate = tmp_path / "gate"
    for priority in ("high", "low", "low"):
        TOOL.submit(place, function, str(gate), background=True, priority=priority)
    assert rows(place, "--status", function) == [["3", "0", "0"]]
    assert rows(place, "--priority-status", function) == [["1", "0", "2", "0"]]
    # A node lists only its own workers.
    with PERL.working(Place(place.submitter, place.submitter), name, tmp_path):
        wait_until(
            lambda: rows(place, "--status", function) == [["3", "1", "1"]], TIMEOUT_S, "one runs"
        )
        workers = [line.split(" : ") for line in gearadmin(place, "--workers") if " : " in line]
        (mine,) = [served.split() for who, served in workers if who.endswith(f" {name}")]
        assert {f"{name}-{one}" for one in PERL.functions} <= set(mine)
        gate.touch()
        wait_until(
            lambda: rows(place, "--status", function) == [["0", "0", "1"]], TIMEOUT_S, "all done"
        )


def test_gearadmin_shows_and_cancels_jobs(place: Place, fresh: Names) -> None:
    function, unique = fresh("shown"), fresh("unique")
    handles = [
        TOOL.submit(place, function, "x", background=True, unique=f"{unique}-{number}").handle
        for number in range(2)
    ]
    shown = gearadmin(place, "--show-jobs")
    for handle in handles:
        assert f"{handle}\t0\t0\t1" in shown
    assert {f"{unique}-0", f"{unique}-1"} <= set(gearadmin(place, "--show-unique-jobs"))
    assert gearadmin(place, "--cancel-job", handles[0]) == ["OK"]
    assert gearadmin(place, "--cancel-job", "H:nowhere:1") == ["Error: UNKNOWN_JOB"]
    assert gearadmin(place, "--drop-function", function) == ["OK"]
    assert rows(place, "--status", function) == []
    if not AGAINST_GEARMAND:  # gearmand forgets jobs only when a worker asks
        assert not {*handles} & {line.split("\t")[0] for line in gearadmin(place, "--show-jobs")}


def test_gearadmin_functions(place: Place, fresh: Names) -> None:
    function = fresh("made")
    assert gearadmin(place, "--create-function", function) == ["OK"]
    assert rows(place, "--status", function) == [["0", "0", "0"]]
    assert gearadmin(place, "--drop-function", function) == ["OK"]
    assert gearadmin(place, "--drop-function", function) == ["Error: function not found"]


def test_gearadmin_server(place: Place) -> None:
    (version,) = gearadmin(place, "--server-version")
    assert version[0].isdigit() and "." in version
    assert len(gearadmin(place, "--server-verbose")) == 1
    (pid,) = gearadmin(place, "--getpid")
    os.kill(int(pid), 0)


def test_npm_administration(place: Place, fresh: Names) -> None:
    function = fresh("npm")
    TOOL.submit(place, function, "x", background=True)
    found = NODE.ask(place, {"do": "admin", "function": function})
    assert found.one("counts") == (1, 0, 0)
    assert found.all("dropped") == ["", "function not found"]


def test_perl_counts_jobs(place: Place, fresh: Names) -> None:
    function = fresh("perl")
    TOOL.submit(place, function, "x", background=True)
    assert PERL.ask(place, {"do": "counts", "function": function}).one("counts") == (1, 0, 0)


def test_pygearman_administration(place: Place, fresh: Names, tmp_path: Path) -> None:
    name, function = fresh("worker"), fresh("py")
    handle = TOOL.submit(place, function, "x", background=True, unique=f"{function}-x").handle
    client = gearman.GearmanAdminClient([place.submitter])
    try:
        assert client.ping_server() > 0
        found = [row for row in client.get_status() if row["task"] == function]
        assert found == [{"task": function, "queued": 1, "running": 0, "workers": 0}]
        assert client.get_version().startswith("OK ")
        assert client.get_pid()
        assert handle in str(client.get_jobs())
        assert f"{function}-x" in str(client.get_unique_jobs())
        assert "OK" in str(client.cancel_job(handle))
        near = Place(place.submitter, place.submitter)
        with PYTHON[0].working(near, name, tmp_path):
            assert name in str(client.get_workers())
    finally:
        client.shutdown()


@pytest.mark.parametrize("program", [PERL, PHP], ids=repr)
def test_a_job_is_taken_away_from_a_slow_worker(
    program: Program, place: Place, fresh: Names, tmp_path: Path
) -> None:
    """After the time-out, of at least a second, another worker gets the job."""
    name, gate = fresh("limited"), tmp_path / "gate"
    function = f"{name}-limited"
    with program.working(place, name, tmp_path):
        handle = TOOL.submit(place, function, str(gate), background=True).handle
        other = Packets(place.worker)
        try:
            other.send(CAN_DO, function.encode())
            assigned = wait_until(lambda: grabbed(other), TIMEOUT_S, "another worker gets it")
            assert assigned == [handle.encode(), function.encode(), str(gate).encode()]
            other.send(WORK_COMPLETE, handle.encode(), b"")
            wait_until(
                lambda: rows(place, "--status", function)[0][:2] == ["0", "0"], TIMEOUT_S, "done"
            )
        finally:
            other.close()


def grabbed(worker: Packets) -> list[bytes]:
    """Ask for a job; return an empty list if there is none."""
    kind, found = worker.ask(GRAB_JOB)
    return found if kind == JOB_ASSIGN else []
