"""The switches of the repairs, one per defect of the library that has a switchable repair.

They exist for simulation only: a run with one of them off must find the defect, which shows that
the run can. Production code never passes a `Repairs`; the defaults are the product. Defects whose
repair is a whole replaced part (journal, serializer, pickle) have no switch; docs/replication.md
lists all.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Repairs:
    """Which repairs are on. The identifiers are those of docs/replication.md."""

    # B1: the follower deletes even entries that match what the message brings.
    keep_matching_entries: bool = True
    # B2: the leader's commit index is used against a log that was not compared with its own.
    commit_verified_only: bool = True
    # B3: an acknowledgement does not say of which term it is.
    acks_of_this_term: bool = True
    # B4: an acknowledgement rewinds what is to be sent next; a rewind is honoured many times.
    acks_never_rewind: bool = True
    one_rewind_per_resend: bool = True
    # B5: a conflicting tail is searched backwards entry by entry, and the search starts anew.
    rewind_whole_terms: bool = True
    # B7: sending never stops, whatever the peer has taken.
    flow_control: bool = True
    # B8: a second leader of the same term is obeyed.
    halt_on_second_leader: bool = True
    # C1: votes are counted without looking at the voter.
    votes_by_name: bool = True
    # C3: a member that was cut off deposes a working leader when it is back.
    pre_vote: bool = True
    leader_stickiness: bool = True
    # C4: after a pause a follower campaigns before it has read what arrived meanwhile.
    pause_is_not_silence: bool = True
    # C5: a deposed leader campaigns again at once.
    deposed_leader_waits: bool = True
    # D1: a leader without majority leads on for 30 s.
    check_quorum: bool = True
    # D2: entries count for a member before its disk has them.
    clip_follower_acks: bool = True
    clip_leader_acks: bool = True
    alone_waits_for_disk: bool = True
    # D5/E1: a read is answered by a leader that may have been replaced.
    confirm_by_majority: bool = True
    # A6: a member that lost its disk votes and counts as if it had it.
    rejoin_without_vote: bool = True
    # C2: term and vote may be forgotten by a crash.
    sync_votes: bool = True
    # F6: a crash between snapshot and log trimming clears the log.
    align_log_with_snapshot: bool = True
    # F7: any snapshot clears the log, even an old one.
    refuse_old_snapshots: bool = True
    # F11: everything that is committed is applied in one step.
    apply_in_slices: bool = True

    def without(self, name: str) -> "Repairs":
        """Return a copy with one repair off."""
        return replace(self, **{name: False})


ALL_REPAIRS = Repairs()
