"""Histories of single jobs, legal and illegal, and a recorded one with random faults."""

import pytest

from chaos import linearizable, record
from chaos.record import Op
from tests.unit.chaos import planted

HEAD = record.make_head(0, 1, 2, 60)
KICK = record.KICK


def op(client: int, line: str, times: tuple[float, float], outcome: str) -> Op:
    """Return a command about job 1, which it names in the same place as the real client."""
    word = line.split()[0]
    kind = {"reserve-job": record.RESERVE, "kick-job": KICK, "peek": record.LOOK}.get(word, word)
    named = outcome in ("INSERTED", "RESERVED") or kind in linearizable.BY_HOLDER
    named = named or line.startswith(("delete", "kick-job"))
    body = HEAD if kind == record.PUT or outcome == "RESERVED" else ""
    return Op(client, 0, kind, *times, int(named), outcome, body, line, "red")


PUT = op(0, "put 0 0 2 60", (0, 1), "INSERTED")
LATE = op(0, "put 0 1 2 60", (0, 1), "INSERTED")
UNKNOWN_PUT = op(0, "put 0 0 2 60", (0, 1), record.UNKNOWN)
TAKE = op(1, "reserve 0", (2, 3), "RESERVED")
LEFT = Op(1, 0, record.LEFT, 3.5, 3.5, 0, "", "")
GOOD = {
    "life": [PUT, TAKE, op(1, "delete 1", (3, 4), "DELETED"), op(2, "peek 1", (5, 6), "NOT_FOUND")],
    "overlap": [
        PUT,
        op(2, "peek 1", (0.5, 0.6), "NOT_FOUND"),
        op(2, "peek 1", (0.7, 0.8), "FOUND"),
    ],
    "TTR": [PUT, TAKE, op(2, "reserve 0", (3, 3.5), "RESERVED")],
    "end": [PUT, TAKE, LEFT, op(2, "reserve 0", (3.1, 3.2), "RESERVED")],
    "touch": [PUT, TAKE, op(1, "touch 1", (3, 4), "TOUCHED")],
    "touch late": [PUT, TAKE, op(1, "touch 1", (5, 6), "NOT_FOUND")],
    "delay": [LATE, op(2, "kick-job 1", (1, 1.1), "KICKED")],
    "kick": [
        *(PUT, TAKE, op(1, "bury 1 0", (3, 4), "BURIED"), op(2, "kick 9", (5, 6), "KICKED")),
        op(2, "reserve 0", (7, 8), "RESERVED"),
    ],
    "unknown put": [UNKNOWN_PUT, op(2, "reserve 0", (5, 6), "RESERVED")],
    "unknown delete": [
        *(PUT, TAKE, op(1, "delete 1", (3, 4), record.UNKNOWN)),
        op(2, "peek 1", (5, 6), "FOUND"),
        op(2, "peek 1", (7, 8), "NOT_FOUND"),
    ],
    "unknown reserve": [
        PUT,
        op(1, "reserve 0", (2, 3), record.UNKNOWN),
        op(2, "delete 1", (4, 5), "NOT_FOUND"),
        op(2, "delete 1", (5, 6), "DELETED"),
    ],
}
BAD = {
    "stale peek": [PUT, op(2, "peek 1", (2, 3), "NOT_FOUND")],
    "peek goes back": [
        *(UNKNOWN_PUT, TAKE),
        op(2, "peek 1", (3, 3.2), "FOUND"),
        op(2, "peek 1", (3.3, 4), "NOT_FOUND"),
    ],
    "deleted and there": [
        *(PUT, TAKE, op(1, "delete 1", (3, 3.1), "DELETED")),
        op(2, "peek 1", (4, 5), "FOUND"),
    ],
    "two holders": [
        *(PUT, TAKE, op(2, "reserve 0", (2.1, 2.5), "RESERVED")),
        *(Op(n, 0, KICK, 3.1, 3.2, 0, "KICKED", "", "kick 1", "red") for n in (1, 2)),
    ],
    "early TTR": [
        PUT,
        op(1, "reserve 0", (2, 2.2), "RESERVED"),
        op(1, "touch 1", (2.5, 2.9), "NOT_FOUND"),
    ],
    "touched by another": [PUT, TAKE, op(2, "touch 1", (3, 4), "TOUCHED")],
    "buried and taken": [
        *(PUT, TAKE, op(1, "bury 1 0", (3, 3.1), "BURIED")),
        op(2, "reserve 0", (4, 5), "RESERVED"),
    ],
    "kick before it": [
        *(PUT, op(2, "kick 9", (1, 1.5), "KICKED")),
        *(TAKE, op(1, "bury 1 0", (3, 3.1), "BURIED"), op(2, "reserve 0", (4, 5), "RESERVED")),
    ],
    "kicked and ready": [PUT, op(2, "kick-job 1", (2, 3), "KICKED")],
    "released for nothing": [PUT, op(1, "release 1 0 0", (2, 3), "RELEASED")],
    "ready and not to be had": [PUT, op(2, "reserve-job 1", (2, 3), "NOT_FOUND")],
    "deleted twice": [
        *(PUT, op(1, "delete 1", (2, 3), "DELETED"), op(2, "delete 1", (2, 3), "DELETED")),
    ],
    "released by the dead": [
        *(PUT, TAKE, LEFT, op(2, "reserve 0", (3.6, 3.7), "RESERVED")),
        op(1, "release 1 0 0", (3.6, 3.8), "RELEASED"),
    ],
}


def judged(ops: list[Op], limit: int = 1000) -> linearizable.Judged:
    clients = [[one for one in ops if one.client == number] for number in range(3)]
    return linearizable.judge(clients, limit)


@pytest.mark.parametrize("name", GOOD)
def test_what_may_happen_is_good(name: str) -> None:
    assert judged(GOOD[name]) == linearizable.Judged([], [], 1)


@pytest.mark.parametrize("name", BAD)
def test_what_may_not_happen_is_found(name: str) -> None:
    assert len(judged(BAD[name]).wrong) == 1


def test_a_search_that_is_given_up_is_neither_good_nor_bad() -> None:
    found = judged(GOOD["life"], limit=1)
    assert (found.wrong, len(found.undecided)) == ([], 1)


def test_a_history_of_real_nodes_is_good_and_every_spoilt_one_is_not() -> None:
    clients = planted.recorded()
    found = linearizable.judge(clients)
    assert (found.wrong, found.undecided) == ([], [])
    assert found.jobs > planted.JOBS_MIN
    for seed in range(planted.SEEDS):
        for spoil in (planted.hide, planted.repeat, planted.revive):
            spoilt, job = spoil(clients, seed)
            wrong = linearizable.judge(spoilt).wrong
            assert any(f"of job {job} is" in line for line in wrong), (spoil.__name__, seed, job)
