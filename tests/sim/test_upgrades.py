"""Rolling upgrades in simulation: hosts whose programs know other machine versions.

On 519da29 the upgraded node of the first schedule was outvoted at the next digest and told to wipe
its disk, and the one of the third stopped the two others (audit finding 8).
"""

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim import schedules_versions as v
from tests.sim.mutant import Check


@pytest.mark.parametrize(
    "schedule",
    [
        v.one_node_is_upgraded,
        v.one_after_the_other_is_upgraded,
        v.an_upgraded_node_leads_before_it_has_heard,
        v.a_node_is_away_while_the_others_are_upgraded,
        v.a_node_goes_back_before_the_raise,
        v.an_old_program_comes_back_after_the_raise,
    ],
    ids=lambda schedule: schedule.__name__,
)
def test_an_upgrade_is_no_alarm(schedule: Check) -> None:
    schedule(0, ALL_REPAIRS)
