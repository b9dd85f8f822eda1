"""The table of mutants: what each breaks, what catches it, and by which verdict.

`mutants` runs it, `test_mutants` runs a short form, docs/testing/mutants.md shows it. Defects that
switch a repair off have the name of its switch; the others are in `mutations`.
"""

from typing import Final

from tests.sim import mutations as m
from tests.sim import schedules as s
from tests.sim import schedules_node as n
from tests.sim.mutant import Mutant, replicas, storm
from tests.sim.mutant_table_bounds import BOUNDS
from tests.sim.mutant_table_identity import IDENTITY
from tests.sim.mutations_admins import ADMINS
from tests.sim.mutations_aliases import ALIASES
from tests.sim.mutations_answers import ANSWERS
from tests.sim.mutations_changes import CHANGES
from tests.sim.mutations_commit import COMMIT
from tests.sim.mutations_disk import DISKS
from tests.sim.mutations_edges import EDGES
from tests.sim.mutations_guests import GUESTS
from tests.sim.mutations_hosts import HOSTS
from tests.sim.mutations_keepers import KEEPERS
from tests.sim.mutations_leaders import LEADERS
from tests.sim.mutations_policies import POLICIES
from tests.sim.mutations_qless import QLESS
from tests.sim.mutations_ruled import RULED
from tests.sim.mutations_rules import POLICY_RULES
from tests.sim.mutations_senders import SENDERS
from tests.sim.mutations_sick import SICK
from tests.sim.mutations_stops import STOPS
from tests.sim.mutations_users import USERS
from tests.sim.mutations_versions import VERSIONS
from tests.sim.schedules_answers import a_delay_ends_with_a_wait

REPAIRS: Final = (
    Mutant(
        "keep_matching_entries",
        "B1: a repeated append deletes matching entries",
        replicas,
        r"commit index fell|is lost|lost, first",
        seed=3,
    ),
    Mutant(
        "commit_verified_only",
        "B2: a commit index counts for a log that was not compared",
        storm,
        r"committed here|others applied none|another entry",
        seed=16,
    ),
    Mutant(
        "acks_of_this_term",
        "B3: acknowledgements count in any term",
        s.an_acknowledgement_of_an_earlier_term,
        r"acknowledgement of term",
    ),
    Mutant(
        "acks_never_rewind",
        "B4: an acknowledgement sends all that is in flight again",
        s.acknowledgements_one_by_one,
        r"were sent",
    ),
    Mutant(
        "one_rewind_per_resend",
        "B4: every message behind a gap sends the backlog again",
        s.many_answers_behind_a_gap,
        r"sent again",
    ),
    Mutant(
        "rewind_whole_terms",
        "B5: a conflict is searched entry by entry",
        s.a_long_tail_of_another_term,
        r"steps back",
    ),
    Mutant(
        "flow_control",
        "B7: sending never stops",
        s.a_peer_that_acknowledges_nothing,
        r"on their way",
    ),
    Mutant(
        "halt_on_second_leader",
        "B8: a second leader of the term is obeyed",
        s.two_leaders_of_one_term,
        r"second leader",
    ),
    Mutant(
        "votes_by_name",
        "C1: a vote counts twice",
        s.a_vote_that_comes_twice,
        r"two of five",
    ),
    Mutant(
        "sync_votes",
        "C2: a vote is forgotten by a power cut",
        s.a_vote_before_a_power_cut,
        r"voted twice",
    ),
    Mutant(
        "pre_vote",
        "C3: a member that was cut off comes back with a higher term",
        s.a_member_comes_back,
        r"was deposed",
    ),
    Mutant(
        "leader_stickiness",
        "C3: a vote is given against a leader that works",
        s.a_vote_against_a_leader_that_works,
        r"voted against",
    ),
    Mutant(
        "pause_is_not_silence",
        "C4: after a pause a member campaigns before it reads",
        s.heartbeats_that_wait_unread,
        r"before it reads",
    ),
    Mutant(
        "deposed_leader_waits",
        "C5: a deposed leader campaigns again at once",
        s.a_leader_is_deposed,
        r"at once",
    ),
    Mutant(
        "check_quorum",
        "D1: a leader without a majority leads on",
        s.a_leader_is_cut_off,
        r"believes in itself",
    ),
    Mutant(
        "clip_follower_acks",
        "D2: a follower acknowledges before its disk has it",
        storm,
        r"disks have|or acknowledged",
        seed=1,
    ),
    Mutant(
        "clip_leader_acks",
        "D2: the leader counts itself before its disk has it",
        storm,
        r"disks have",
        seed=2,
    ),
    Mutant(
        "alone_waits_for_disk",
        "D2: alone, an entry is committed before the disk has it",
        n.a_lone_node_loses_power,
        r"disks have|is lost",
    ),
    Mutant(
        "confirm_by_majority",
        "E1: a read is answered without a majority",
        s.an_answer_to_an_earlier_question,
        r"is confirmed",
    ),
    Mutant(
        "rejoin_without_vote",
        "A6: an empty disk votes early",
        s.a_disk_is_lost_and_then_the_leader,
        r"are lost",
    ),
    Mutant(
        "align_log_with_snapshot",
        "F6: a power cut behind a snapshot clears the log",
        storm,
        r"or acknowledged|are lost",
        seed=1,
    ),
    Mutant(
        "refuse_old_snapshots",
        "F7: an old snapshot clears the log",
        s.a_snapshot_that_was_overtaken,
        r"is left",
    ),
    Mutant(
        "apply_in_slices",
        "F11: a whole log is applied in one turn",
        s.a_long_log_at_the_start,
        r"one turn",
    ),
)
RULES: Final = (
    Mutant(
        "no_grace",
        "time: no expiry floor after a change of leader",
        storm,
        r"after a change of leader",
        m.no_grace,
        seed=1,
    ),
    Mutant(
        "late_floor",
        "time: the expiry floor takes effect after the entry's time",
        storm,
        r"after a change of leader",
        m.late_floor,
        seed=1,
    ),
    Mutant(
        "short_grace",
        "time: a leader that is behind the log gives less than the grace",
        n.a_leader_knows_less_than_the_log,
        r"after a change of leader",
        m.short_grace,
    ),
    Mutant(
        "nobody_asked",
        "time: a leader that was down counts an hour in which the others stood",
        n.a_node_was_down_while_the_others_slept,
        r"the TTR of job",
        m.nobody_asked,
    ),
    Mutant(
        "pauses_count",
        "time: a leader's pause counts",
        storm,
        r"which could serve",
        m.pauses_count,
        seed=6,
    ),
    Mutant(
        "lonely_clock",
        "time: runs while no majority answers",
        n.a_leader_alone_for_a_moment,
        r"nobody answered",
        m.lonely_clock,
    ),
    Mutant(
        "growing_clock",
        "time: a follower's clock never follows down",
        n.a_leader_alone_again_and_again,
        r"the TTR of job .* ended after",
        m.growing_clock,
    ),
    Mutant(
        "time_falls",
        "time: goes back with an older entry",
        n.a_cold_start_with_clocks_that_nobody_believes,
        r"takes cluster time back",
        m.time_falls,
    ),
    Mutant(
        "early_ttr",
        "time: a TTR ends early",
        storm,
        r"the TTR of job .* ended after",
        m.early_ttr,
        seed=2,
    ),
    Mutant(
        "fast_clock",
        "time: the leader's clock is too fast",
        storm,
        r"which could serve|the TTR|ready after",
        m.fast_clock,
        seed=1,
    ),
    Mutant(
        "no_deadline",
        "time: no DEADLINE_SOON",
        n.a_job_runs_out_while_its_worker_waits,
        r"ran out",
        m.no_deadline,
    ),
    Mutant(
        "no_ticks",
        "time: passes only with writes",
        storm,
        r"what was due|waits are not served",
        m.no_ticks,
        seed=1,
    ),
    Mutant(
        "applied_twice",
        "once: a batch sent twice is applied twice",
        storm,
        r"put twice|deleted twice",
        m.applied_twice,
        seed=1,
    ),
    Mutant(
        "dead_incarnation",
        "once: a batch of a dead incarnation counts",
        n.a_node_acts_after_it_was_declared_down,
        r"declared down",
        m.dead_incarnation,
    ),
    Mutant(
        "gap_taken",
        "once: a batch that came too early counts",
        n.a_leader_loses_a_batch,
        r"not sent again",
        m.gap_taken,
    ),
    Mutant(
        "gap_ignored",
        "once: no origin sends a lost batch again",
        n.a_leader_loses_a_batch,
        r"not sent again",
        m.gap_ignored,
    ),
    Mutant(
        "not_sent_again",
        "once: a new leader gets only new batches",
        storm,
        r"no put is answered|every node|are not served|still open|not all nodes",
        m.not_sent_again,
        seed=1,
    ),
    Mutant(
        "hasty_answer",
        "an answer before the commit",
        storm,
        r"answered, but not done|deleted twice|nobody deleted",
        m.hasty_answer,
        seed=1,
    ),
    Mutant(
        "granted_twice",
        "waits: one request is granted two jobs",
        n.a_grant_that_comes_twice,
        r"second job",
        m.granted_twice,
    ),
    Mutant(
        "none_beside_ready",
        "waits: NONE while a job is ready",
        a_delay_ends_with_a_wait,
        r"TIMED_OUT when it was time for RESERVED",
        m.none_beside_ready,
    ),
    Mutant(
        "none_by_itself",
        "waits: the origin ends a wait without NONE",
        storm,
        r"was ready all the time",
        m.none_by_itself,
        seed=1,
    ),
    Mutant(
        "line_forgotten",
        "waits: the clients of a node that was silent for a moment are never served again",
        n.an_origin_stands_still_for_a_moment,
        r"waits for ever",
        m.line_forgotten,
    ),
    Mutant(
        "no_fence",
        "lives: a node that is cut off keeps its clients",
        n.a_node_is_cut_off_with_its_clients,
        r"is declared down and has not closed its clients",
        m.no_fence,
    ),
    Mutant(
        "no_node_down",
        "lives: a dead node keeps its jobs",
        n.a_node_dies_with_a_job,
        r"not 1",
        m.no_node_down,
    ),
    Mutant(
        "deaf_to_its_death",
        "lives: a node that was declared down goes on",
        n.a_node_is_given_up_and_comes_back,
        r"answers nobody",
        m.deaf_to_its_death,
    ),
    Mutant(
        "no_memory_of_replacement",
        "lives: a new disk is refused once it counts",
        n.a_disk_is_replaced_while_another_node_is_away,
        r"another disk than before",
        m.no_memory_of_replacement,
    ),
    Mutant(
        "no_drain",
        "lives: a draining node takes puts",
        storm,
        r"was draining",
        m.no_drain,
        seed=1,
    ),
    Mutant(
        "no_quit",
        "lives: `quit` ends nothing",
        storm,
        r"asked for the end",
        m.no_quit,
        seed=1,
    ),
    Mutant(
        "other_machine",
        "one machine counts otherwise",
        storm,
        r"differs after",
        m.other_machine,
        seed=1,
    ),
    Mutant(
        "no_keys",
        "once: a repeated key makes another job",
        storm,
        r"the key .* made the jobs",
        m.no_keys,
        seed=1,
    ),
    Mutant(
        "image_forgets_keys",
        "an image forgets which keys were seen",
        storm,
        r"differs after",
        m.image_forgets_keys,
        seed=2,
    ),
    Mutant(
        "image_forgets_time",
        "an image forgets since when jobs are ready",
        storm,
        r"the events of",
        m.image_forgets_time,
        seed=2,
    ),
    Mutant(
        "snapshot_before_events",
        "events: a snapshot cuts the log before they are on the disk",
        storm,
        r"has only the events",
        m.snapshot_before_events,
        seed=37,
    ),
    Mutant(
        "events_kept_again",
        "events: events that the log brings again are kept twice",
        storm,
        r"has only the events|says: events|has other events",
        m.events_kept_again,
        seed=2,
    ),
    Mutant(
        "failed_write_ignored",
        "disks: a failed write is ignored",
        storm,
        r"goes on although|or acknowledged",
        m.failed_write_ignored,
        seed=5,
    ),
    Mutant(
        "damage_cut",
        "disks: damage is taken for a torn tail",
        storm,
        r"started although|or acknowledged",
        m.damage_cut,
        seed=1,
    ),
)
# Defects that the oracle sees at once, here seen by what a client loses.
SCHEDULES: Final = (
    Mutant(
        "clip_follower_acks",
        "D2: the same, and the followers come back without the leader",
        n.power_is_lost_and_the_leader_stays_away,
        r"differs|is lost|another entry",
    ),
    Mutant(
        "clip_leader_acks",
        "D2: the same, and the leader comes back with a follower that was away",
        n.power_is_lost_and_the_leader_had_a_slow_disk,
        r"differs|is lost|another entry",
    ),
)
MUTANTS: Final[tuple[Mutant, ...]] = (
    *(*REPAIRS, *COMMIT, *RULES, *SICK, *BOUNDS, *VERSIONS, *ANSWERS, *DISKS, *EDGES, *LEADERS),
    *(
        *HOSTS,
        *IDENTITY,
        *GUESTS,
        *QLESS,
        *ADMINS,
        *ALIASES,
        *KEEPERS,
        *POLICIES,
        *POLICY_RULES,
        *RULED,
        *CHANGES,
        *STOPS,
        *USERS,
        *SENDERS,
    ),
)
NAMES: Final = {mutant.name: mutant for mutant in MUTANTS}
