"""The switches of the repairs, one per defect of the library that has a switchable repair.

They exist for simulation only: a run with a repair off must find the defect, which shows that the
simulation can detect it. Production code never passes a `Repairs`; the defaults are the product.
Defects that are repaired by replacing a whole part (journal, serializer, pickle) have no switch;
docs/replication.md lists all defects.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Repairs:
    """The set of active repairs. The identifiers are defined in docs/replication.md."""

    # B1: the follower deletes even entries that match those of the message.
    keep_matching_entries: bool = True
    # B2: the leader's commit index is applied to a log that was not compared with the leader's.
    commit_verified_only: bool = True
    # B3: an acknowledgement does not carry its term.
    acks_of_this_term: bool = True
    # B4: an acknowledgement rewinds the next index to send; a rewind is honoured many times.
    acks_never_rewind: bool = True
    one_rewind_per_resend: bool = True
    # B5: a conflicting tail is searched backwards entry by entry, and the search starts over.
    rewind_whole_terms: bool = True
    # B7: sending never stops, even if the peer accepts nothing.
    flow_control: bool = True
    # B8: a second leader of the same term is obeyed.
    halt_on_second_leader: bool = True
    # C1: votes are counted without a check of the voter.
    votes_by_name: bool = True
    # C3: a member that was cut off deposes a working leader when it returns.
    pre_vote: bool = True
    leader_stickiness: bool = True
    # C4: after a pause a follower campaigns before it reads the messages that arrived during it.
    pause_is_not_silence: bool = True
    # C5: a deposed leader campaigns again at once.
    deposed_leader_waits: bool = True
    # D1: a leader without a majority continues to lead for 30 s.
    check_quorum: bool = True
    # D2: entries count for a member before they are durable on its disk.
    clip_follower_acks: bool = True
    clip_leader_acks: bool = True
    alone_waits_for_disk: bool = True
    # D5/E1: a read is answered by a leader that may have been replaced.
    confirm_by_majority: bool = True
    # A6: a member that lost its disk votes and counts as before.
    rejoin_without_vote: bool = True
    # C2: a crash may lose term and vote.
    sync_votes: bool = True
    # F6: a crash between snapshot and log trimming clears the log.
    align_log_with_snapshot: bool = True
    # F7: any snapshot clears the log, even an old one.
    refuse_old_snapshots: bool = True
    # F11: all committed entries are applied in one step.
    apply_in_slices: bool = True

    def without(self, name: str) -> "Repairs":
        """Return a copy with one repair off."""
        return replace(self, **{name: False})


ALL_REPAIRS = Repairs()
