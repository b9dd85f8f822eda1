"""The schedules of `schedules_answers` hold for the real code: every answer to a client is true."""

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim import schedules_answers as s
from tests.sim.mutant import Check


@pytest.mark.parametrize(
    "schedule",
    [
        s.two_clients_make_one_tube_too_many,
        s.a_tube_vanishes_before_it_is_watched,
        s.a_node_is_left_alone,
        s.a_delay_ends_with_a_wait,
        s.a_pause_ends_with_a_wait,
        s.a_ttr_ends_with_a_wait,
        s.a_warning_is_due_with_a_wait,
        s.idle_workers_poll,
    ],
    ids=lambda schedule: schedule.__name__,
)
def test_it_holds(schedule: Check) -> None:
    schedule(0, ALL_REPAIRS)
