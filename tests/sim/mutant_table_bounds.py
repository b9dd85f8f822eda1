"""The mutants of limits: part of the table in `mutant_table`."""

from typing import Final

from tests.sim import mutations_bounds as m
from tests.sim import schedules_bounds as s
from tests.sim.mutant import Mutant

BOUNDS: Final = (
    Mutant(
        "jobs_weigh_nothing",
        "limits: a batch is weighed by the number of its commands",
        s.calls_of_the_largest_jobs,
        r"an entry of \d+ bytes",
        m.jobs_weigh_nothing,
    ),
    Mutant(
        "boundless_kicks",
        "limits: one entry kicks as many jobs as all clients ask for",
        s.many_kicks_in_one_moment,
        r"one entry kicked",
        m.boundless_kicks,
    ),
    Mutant(
        "boundless_deaths",
        "limits: a session that ends gives all its jobs back in one entry",
        s.a_node_dies_with_thousands_of_jobs,
        r"one entry returned",
        m.boundless_deaths,
    ),
)
