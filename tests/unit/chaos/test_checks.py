"""The judge of the soak: it finds each fault, and none in legal histories."""

from collections.abc import Callable

import pytest

from chaos import ending, record
from chaos.checks import Window, gaps_s, judge, percentile
from chaos.record import Op

HEAD = record.make_head(0, 1, 600, 60)
SHORT = record.make_head(0, 2, 2, 60)


def op(client: int, kind: str, times: tuple[float, float], outcome: str, **more: object) -> Op:
    job, body = more.get("job", 1), more.get("body", "")
    assert isinstance(job, int) and isinstance(body, str)
    return Op(client, 0, kind, *times, job, outcome, body)


def reserve(client: int, times: tuple[float, float], body: str = HEAD, job: int = 1) -> Op:
    return op(client, record.RESERVE, times, "RESERVED", job=job, body=body)


def good() -> list[list[Op]]:
    """Return a history that looks wrong in many places and is legal."""
    return [
        [
            op(0, record.PUT, (0, 1), "INSERTED", body=HEAD),
            op(0, record.PUT, (1, 2), "INSERTED", job=2, body=SHORT),
            reserve(0, (2, 3)),
            op(0, record.TOUCH, (4, 4.5), "TOUCHED"),
            op(0, record.RELEASE, (5, 5.5), "RELEASED"),
            # A TTR that ended, and the same job with another client.
            reserve(0, (6, 6.1), SHORT, 2),
            op(0, record.TOUCH, (8, 8.1), "NOT_FOUND", job=2),
        ],
        [
            # Sent long before, granted when the other client released it, and lost with the
            # connection.
            reserve(1, (2.5, 5.2)),
            op(1, record.LEFT, (6, 6), "", job=0),
            # The reply was made before the TTR ended, and read when another client had the job.
            reserve(1, (6.05, 9.5), SHORT, 2),
            op(1, record.DELETE, (9.6, 9.7), "NOT_FOUND", job=2),
        ],
        [
            reserve(2, (8, 9), SHORT, 2),
            op(2, record.DELETE, (9.6, 9.8), "DELETED", job=2),
            reserve(2, (10, 11)),
            op(2, record.DELETE, (12, 12.5), "DELETED"),
        ],
    ]


def test_a_run_without_a_put_tests_nothing() -> None:
    assert ending.idle(judge(good())) == []
    away = op(0, record.CONNECT, (0, 1), record.UNKNOWN, job=0)
    for clients in ([], [[away]], [[op(0, record.PUT, (0, 1), "DRAINING", job=0, body=HEAD)]]):
        assert judge(clients).violations() == []
        assert ending.idle(judge(clients)) == ["no put was acknowledged: nothing was tested"]


def test_a_judge_that_gives_up_on_many_jobs_is_told() -> None:
    found = judge(good())
    assert ending.undecided(found) == []
    found.undecided.append("the history of job 2 is too long to judge")
    (told,) = ending.undecided(found)
    assert told.startswith("1 of 2 jobs were not judged, for instance: the history of job 2")
    found.verdict = found.verdict._replace(acknowledged=100)
    assert ending.undecided(found) == []


def test_a_good_history_is_good() -> None:
    found = judge(good())
    assert found.violations() == []
    assert found.verdict.acknowledged == 2


def double(clients: list[list[Op]]) -> None:
    clients.append([reserve(3, (3.1, 3.2))])


def double_by_touch(clients: list[list[Op]]) -> None:
    clients.append([reserve(3, (1, 3.2)), op(3, record.TOUCH, (4, 4.1), "TOUCHED")])


def early(clients: list[list[Op]]) -> None:
    clients[1].insert(0, op(1, record.TOUCH, (4, 4.1), "NOT_FOUND", job=9))
    clients[1].insert(0, reserve(1, (3, 3.5), job=9))


def resurrect(clients: list[list[Op]]) -> None:
    clients.append([reserve(3, (13, 14))])


def lose(clients: list[list[Op]]) -> None:
    clients[0].append(op(0, record.PUT, (20, 21), "INSERTED", job=7, body="0/9/1/60/"))


def invent(clients: list[list[Op]]) -> None:
    clients[2].append(reserve(2, (20, 21), "5/5/5/60/", 8))


def delete_twice(clients: list[list[Op]]) -> None:
    clients[2].append(op(2, record.DELETE, (20, 21), "DELETED"))


def say_nothing(clients: list[list[Op]]) -> None:
    clients[2].append(op(2, record.KICK, (20, 60), record.SILENT, job=0))


@pytest.mark.parametrize(
    "spoil",
    [double, double_by_touch, early, resurrect, lose, invent, delete_twice, say_nothing],
)
def test_every_fault_is_found(spoil: Callable[[list[list[Op]]], None]) -> None:
    clients = good()
    spoil(clients)
    assert judge(clients).violations()


def test_a_gap_is_the_longest_time_without_an_acknowledgement() -> None:
    clients = good()
    # No reply follows the last window; the second gap extends past its window to the next reply.
    assert gaps_s(clients, [Window(3.0, 6.2), Window(6.5, 8.5), Window(12.5, 20.0)]) == [
        1.5,
        2.5,
        7.5,
    ]


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (50.0, 95.0)
    assert percentile([3.0], 0.95) == 3.0


def test_a_body_is_read_only_if_it_is_whole() -> None:
    body = record.make_body(HEAD)
    assert record.read_body(body) == HEAD
    assert record.read_body(body[:-1]) is None
    assert record.read_body(body.replace(b"600", b"601")) != HEAD
    assert record.read_body(b"x" + body) is None
