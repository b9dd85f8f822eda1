"""The mutants of the rules about disks and their identity: part of the table in `mutant_table`."""

from typing import Final

from tests.sim import mutations_identity as m
from tests.sim import schedules_identity as s
from tests.sim.mutant import Mutant

IDENTITY: Final = (
    Mutant(
        "forgotten_flag",
        "disks: a flag that was given once is forgotten by a crash",
        s.a_flag_is_forgotten_after_a_death_in_the_start,
        r"votes with an empty disk",
        m.forgotten_flag,
    ),
    Mutant(
        "any_birth",
        "disks: an empty disk joins with a vote",
        s.two_disks_are_wiped,
        r"should refuse|is lost at|serves without",
        m.any_birth,
    ),
    Mutant(
        "log_not_noted",
        "disks: a log that is gone is a new one",
        s.a_log_folder_is_gone,
        r"is lost at|should refuse",
        m.log_not_noted,
    ),
    Mutant(
        "older_life",
        "disks: one that was restored from an earlier life votes",
        s.a_disk_is_restored_from_an_earlier_life,
        r"is lost at|with an older disk|should refuse",
        m.older_life,
    ),
    Mutant(
        "life_told_late",
        "commits: other nodes learn late that one has begun a life",
        s.a_disk_is_restored_from_an_earlier_life,
        r"with an older disk|should refuse",
        m.life_told_late,
    ),
    Mutant(
        "older_moment",
        "disks: one that lost entries it had announced votes",
        s.a_disk_is_restored_from_an_earlier_moment,
        r"lost what it had",
        m.older_moment,
    ),
    Mutant(
        "older_votes",
        "start: an older copy goes on with a member that does not know it",
        s.an_older_copy_meets_one_that_knows_and_one_that_does_not,
        r"is lost at|should refuse",
        m.older_votes,
    ),
    Mutant(
        "two_found",
        "founding: a majority of empty disks is enough",
        s.two_disks_are_wiped,
        r"began a cluster|never belong together",
        m.two_found,
    ),
    Mutant(
        "any_list",
        "members: a list that was cut begins a second cluster",
        s.a_list_is_cut_to_its_own_node,
        r"should refuse",
        m.any_list,
    ),
    Mutant(
        "one_refusal",
        "start: one wrong peer ends a healthy node",
        s.a_peer_has_another_configuration,
        r"ended because of n2|should serve",
        m.one_refusal,
    ),
    Mutant(
        "any_life",
        "births: two lives of a cluster talk",
        s.a_disk_of_another_life_is_put_in,
        r"should refuse|is lost|committed here|another entry|stopped itself",
        m.any_life,
    ),
)
