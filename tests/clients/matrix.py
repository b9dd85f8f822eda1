"""Tests for every Gearman client library, which two suites run with their programs.

`tests/integration/test_gearman_clients.py` runs them with the libraries of PyPI, `test_programs.py`
in this folder with all. Abilities of single libraries are tested in `test_tools.py`.
"""

import threading
from pathlib import Path

from tests.clients.harness import Place, Program, Reply
from tests.clients.places import AGAINST_GEARMAND, Names, Workers
from tests.integration.support.gearmand import GET_STATUS_UNIQUE, Packets
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0


def lines(path: Path, count: int) -> list[str]:
    """Wait until workers have noted at least `count` lines; return all lines."""
    wait_until(lambda: len(path.read_text().splitlines()) >= count, TIMEOUT_S, f"{count} notes")
    return path.read_text().splitlines()


def wait_until_attached(place: Place, unique: str, count: int) -> None:
    """Wait until `count` clients wait for a job."""
    client = Packets(place.worker)
    try:
        wait_until(
            lambda: client.ask(GET_STATUS_UNIQUE, unique.encode())[1][-1] == b"%d" % count,
            TIMEOUT_S,
            f"{count} clients wait",
        )
    finally:
        client.close()


def check_foreground(submitter: Program, worker: Program, place: Place, name: str) -> None:
    """Check that a job's result, data, warning, progress and failure arrive."""
    reply = submitter.submit(place, f"{name}-reverse", "abc")
    assert (reply.end, reply.one("complete")) == ("complete", "cba")

    reply = submitter.submit(place, f"{name}-parts", "abc")
    *data, result = (part.format("abc") for part in worker.parts)
    if "data" in submitter.submits:
        assert (reply.all("data"), reply.one("complete")) == (data, result)
    else:
        assert reply.one("complete") == "".join([*data, result])
    if "warning" in submitter.submits & worker.works:
        assert reply.all("warning") == ["careful"]
    if "progress" in submitter.submits & worker.works:
        assert reply.all("progress") == [(1, 2)]

    if "fail" in worker.works:
        assert submitter.submit(place, f"{name}-fail", "abc").end == "failed"


def check_exceptions(submitter: Program, worker: Program, place: Place, name: str) -> None:
    """Submitters that request exceptions get them, others a failure; the worker goes on."""
    if "throw" not in worker.works:
        return
    if "exceptions" in submitter.submits:
        reply = submitter.submit(place, f"{name}-throw", "abc")
        assert reply.end == "exception"
        assert "thrown:abc" in str(reply.one("exception"))
    elif not AGAINST_GEARMAND:
        # The handle in gearmand's WORK_FAIL has a byte too many, and some clients wait forever.
        assert submitter.submit(place, f"{name}-throw", "abc").end == "failed"
    reply = submitter.submit(place, f"{name}-reverse", "abc")
    assert (reply.end, reply.one("complete")) == ("complete", "cba")


def test_foreground(program: Program, place: Place, workers: Workers) -> None:
    check_foreground(program, program, place, workers(program))


def test_exceptions(program: Program, place: Place, workers: Workers) -> None:
    check_exceptions(program, program, place, workers(program))


def test_each_submits_to_each(
    submitter: Program, worker: Program, place: Place, workers: Workers
) -> None:
    check_foreground(submitter, worker, place, workers(worker))
    check_exceptions(submitter, worker, place, workers(worker))


def test_background(program: Program, place: Place, workers: Workers, paper: Path) -> None:
    reply = program.submit(place, f"{workers(program)}-note", f"{paper} done", background=True)
    assert reply.handle.split("//")[-1].startswith("H:")
    assert lines(paper, 1) == ["done"]


def test_priorities(
    program: Program, place: Place, fresh: Names, paper: Path, tmp_path: Path
) -> None:
    name = fresh("priorities")
    for priority in ("low", "normal", "high", "low", "normal", "high"):
        program.submit(
            place, f"{name}-note", f"{paper} {priority}", background=True, priority=priority
        )
    with program.working(place, name, tmp_path):
        noted = lines(paper, 6)
    assert noted == ["high", "high", "normal", "normal", "low", "low"]


def test_status(program: Program, place: Place, fresh: Names, tmp_path: Path) -> None:
    if "status" not in program.submits:
        return
    name, gate = fresh("status"), tmp_path / "gate"
    handle = program.submit(place, f"{name}-wait", str(gate), background=True).handle
    found = program.status(place, handle)
    assert (found.one("status"), found.one("progress")) == ((True, False), (0, 0))

    def states(known: bool, running: bool, progress: tuple[int, int]) -> bool:
        found = program.status(place, handle)
        return (found.one("status"), found.one("progress")) == ((known, running), progress)

    progress = (1, 4) if "progress" in program.works else (0, 0)
    with program.working(place, name, tmp_path):
        wait_until(lambda: states(True, True, progress), TIMEOUT_S, "it runs")
        gate.touch()
        wait_until(lambda: states(False, False, (0, 0)), TIMEOUT_S, "it is done")


def test_unique_in_background(
    program: Program, place: Place, fresh: Names, paper: Path, tmp_path: Path
) -> None:
    name, unique = fresh("unique"), fresh("key")
    replies = [
        program.submit(
            place, f"{name}-note", f"{paper} {text}", background=True, unique=unique
        ).handle
        for text in ("first", "second")
    ]
    assert replies[0] == replies[1]
    other = program.submit(place, f"{name}-note", f"{paper} third", background=True, unique="x")
    assert other.handle != replies[0]
    with program.working(place, name, tmp_path):
        assert lines(paper, 2) == ["first", "third"]


def test_unique_in_foreground(
    program: Program, place: Place, fresh: Names, paper: Path, tmp_path: Path
) -> None:
    """Two clients wait for one job, and both get its result."""
    name, unique = fresh("shared"), fresh("key")
    replies: list[Reply] = []

    def submit(text: str) -> None:
        replies.append(program.submit(place, f"{name}-note", f"{paper} {text}", unique=unique))

    threads = [threading.Thread(target=submit, args=(text,)) for text in ("one", "other")]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until_attached(place, unique, count)
    with program.working(place, name, tmp_path):
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert [reply.one("complete") for reply in replies] == ["one", "one"]
    assert paper.read_text() == "one\n"
