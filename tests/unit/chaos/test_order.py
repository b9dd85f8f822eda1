"""Deliveries in order and out of order."""

from chaos import order, record
from chaos.record import Op
from tests.unit.chaos import planted


def put(job: int, at_s: float, priority: int = 1, delay_s: int = 0, tube: str = "red") -> Op:
    head = record.make_head(0, job, 600, 60)
    line = f"put {priority} {delay_s} 600 60"
    return Op(0, 0, record.PUT, at_s, at_s + 0.5, job, "INSERTED", head, line, tube)


def take(job: int, sent_s: float, done_s: float) -> Op:
    head, line = record.make_head(0, job, 600, 60), "reserve-with-timeout 0"
    return Op(1, 0, record.RESERVE, sent_s, done_s, job, "RESERVED", head, line, "red")


def unknown(sent_s: float) -> Op:
    line = "reserve-with-timeout 0"
    return Op(2, 0, record.RESERVE, sent_s, sent_s + 1, 0, record.UNKNOWN, "", line, "red")


def wrong(*ops: Op) -> int:
    return len(order.judge([list(ops)]).wrong)


def test_the_job_with_the_smaller_id_comes_first() -> None:
    assert wrong(put(1, 0), put(2, 1), take(1, 2, 3), take(2, 4, 5)) == 0
    assert wrong(put(1, 0), put(2, 1), take(2, 2, 3), take(1, 4, 5)) == 1
    assert wrong(put(1, 0), put(2, 1), take(2, 2, 3)) == 1


def test_the_more_urgent_job_comes_first() -> None:
    assert wrong(put(1, 0, 2), put(2, 1, 1), take(2, 2, 3), take(1, 4, 5)) == 0
    assert wrong(put(1, 0, 2), put(2, 1, 1), take(1, 2, 3), take(2, 4, 5)) == 1


def test_what_overlaps_proves_nothing() -> None:
    # The first job may have been taken first, and put after the other one was requested.
    assert wrong(put(1, 0), put(2, 1), take(2, 2, 3), take(1, 2.9, 3.5)) == 0
    assert wrong(put(1, 0), put(2, 1, 0), take(1, 1.2, 3), take(2, 4, 5)) == 0


def test_only_jobs_that_are_surely_ready_in_one_tube_count() -> None:
    assert wrong(put(1, 0, tube="blue"), put(2, 1), take(2, 2, 3), take(1, 4, 5)) == 0
    assert wrong(put(1, 0, delay_s=1), put(2, 1), take(2, 2, 3), take(1, 4, 5)) == 0
    release = Op(1, 0, record.RELEASE, 3, 3.5, 1, "RELEASED", "", "release 1 0 0", "red")
    first = (put(1, 0, 3), take(1, 2, 3), release, put(2, 3.6, 2))
    assert wrong(*first, take(1, 5, 6), take(2, 7, 8)) == 0


def test_each_unknown_reserve_explains_one_job() -> None:
    passed = [put(1, 0), put(2, 1), put(3, 2), take(3, 9, 10), take(1, 11, 12), take(2, 13, 14)]
    assert wrong(*passed) == 2
    assert wrong(*passed, unknown(7)) == 1
    assert wrong(*passed, unknown(7), unknown(8)) == 0
    assert wrong(*passed, unknown(20), unknown(-10 - record.LINGER_S)) == 2


def test_ids_grow() -> None:
    assert wrong(put(2, 0), put(1, 0.4)) == 0
    assert wrong(put(2, 0), put(1, 1)) == 1


def test_a_history_of_real_nodes_is_in_order_and_a_job_passed_over_is_found() -> None:
    clients = planted.recorded()
    found = order.judge(clients)
    assert found.wrong == []
    assert found.deliveries > planted.JOBS_MIN
    for seed in range(planted.SEEDS):
        spoilt, job = planted.postpone(clients, seed)
        assert any(f"job {job} was" in line for line in order.judge(spoilt).wrong), (seed, job)
