"""Disks that are lost, copied or restored, and lists that are edited, in simulation.

At 519da29 a second cluster was founded, a disk without its log voted, and acknowledged jobs were
lost in all but the last three schedules (audit findings 1, 2, 3 and C).
"""

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim import schedules_identity as s
from tests.sim.mutant import Check


@pytest.mark.parametrize(
    "schedule",
    [
        s.a_flag_is_forgotten_after_a_death_in_the_start,
        s.a_log_folder_is_gone,
        s.a_disk_is_restored_from_an_earlier_life,
        s.a_disk_is_restored_from_an_earlier_moment,
        s.an_older_copy_meets_one_that_knows_and_one_that_does_not,
        s.two_disks_are_wiped,
        s.two_fresh_disks_and_one_that_rejoins,
        s.a_list_is_cut_to_its_own_node,
        s.a_peer_has_another_configuration,
        s.a_peer_knows_only_later_versions,
        s.a_disk_of_another_life_is_put_in,
        s.a_founder_comes_late,
    ],
    ids=lambda schedule: schedule.__name__,
)
def test_nothing_is_lost_and_nothing_begins_twice(schedule: Check) -> None:
    schedule(0, ALL_REPAIRS)
