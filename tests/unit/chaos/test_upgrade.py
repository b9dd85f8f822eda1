"""The checks of an upgrade: errors at running nodes, files that an older program changed."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos import record
from chaos.record import Op
from chaos.upgrade import Away, Upgrade, _is_same, errors_elsewhere

AWAY = [Away(1, 10.0, 12.0)]


def op(node: int, sent_s: float, done_s: float, outcome: str, kind: str = record.PUT) -> Op:
    return Op(0, node, kind, sent_s, done_s, 0, outcome, "")


@pytest.mark.parametrize("outcome", ["unknown", "INTERNAL_ERROR", "DRAINING", "OUT_OF_MEMORY"])
def test_an_error_at_a_node_that_was_up_counts(outcome: str) -> None:
    assert len(errors_elsewhere([[op(0, 10.5, 11, outcome)]], AWAY)) == 1
    assert len(errors_elsewhere([[op(1, 8, 9, outcome)]], AWAY)) == 1
    assert errors_elsewhere([[op(1, 9.5, 10.5, outcome)]], AWAY) == []


def test_a_connection_that_was_lost_with_its_node_fails_later() -> None:
    before = op(1, 9, 9.1, "INSERTED")
    lost = op(1, 13, 13.1, "unknown")
    assert errors_elsewhere([[before, lost]], AWAY) == []
    left = op(1, 12.5, 12.5, "", record.LEFT)
    assert len(errors_elsewhere([[before, left, lost]], AWAY)) == 1


def test_a_node_that_takes_no_connection_counts_unless_it_was_away() -> None:
    assert errors_elsewhere([[op(1, 11, 11, "unknown", record.CONNECT)]], AWAY) == []
    assert len(errors_elsewhere([[op(2, 11, 11, "unknown", record.CONNECT)]], AWAY)) == 1


def test_answers_are_no_errors() -> None:
    words = ("INSERTED", "TIMED_OUT", "NOT_FOUND", "DEADLINE_SOON")
    assert errors_elsewhere([[op(0, 1, 2, word) for word in words]], AWAY) == []


def test_room_for_the_next_records_is_no_change_of_a_log() -> None:
    before = {"log/1.wal": b"records", "clock": b"12"}
    assert _is_same("log/1.wal", before, {"log/1.wal": b"records" + bytes(9)})
    for after in ({"log/1.wal": b"records" + bytes(9) + b"more"}, {"log/1.wal": b"record"}, {}):
        assert not _is_same("log/1.wal", before, after)
    assert not _is_same("clock", before, {"clock": b"12" + bytes(9)})
    assert not _is_same("log/2.wal", before, {"log/2.wal": b""})


def test_only_the_new_program_s_memory_is_compared() -> None:
    """Their sizes differ by 13 MiB, and a quarter of a run may have more of one program."""
    run: Any = Upgrade.__new__(Upgrade)  # without nodes
    run.old, run.new = "0.3.0", "0.4.0"
    run._runs = {0: run.old, 1: run.new, 2: run.old}
    nodes = [(0, 5.0, 100), (1, 5.0, 101)]  # the third is down
    run._ground = SimpleNamespace(living=lambda: nodes)
    assert run.measured() == nodes[1:]
