"""The conditions of health that load balancers and orchestrators ask for, over HTTP and gRPC."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from beanpoled.view import NodeView

# A loop with a longer delay does not work; elections are decided in less.
LOOP_LAG_MAX_S: Final = 10.0
FULL_WORDS: Final = "the disk is full: remove other files; the log takes nothing until then"


class Check(NamedTuple):
    """One condition of liveness or readiness."""

    name: str
    passed: bool
    words: str


def liveness(view: NodeView) -> list[Check]:
    """Check the process alone: a lost majority must never restart nodes."""
    lag = view.loop_lag_s
    return [
        Check("failure", view.failure is None, view.failure or "none"),
        Check("loop", lag <= LOOP_LAG_MAX_S, f"lag {lag:.3f} s"),
    ]


def waiting_words(members: Iterable[str], rejoining: bool) -> str:
    """Describe what a node waits for whose disk does not know its cluster."""
    names = ", ".join(members)
    return f"waiting for {names}" if rejoining else f"waiting for {names} to found the cluster"


def _state_words(view: NodeView) -> str:
    waits = view.waits()
    return f"{view.state}, {waits}" if waits else view.state


def readiness(view: NodeView, leader_only: bool = False) -> list[Check]:
    """Check whether clients should come to this node (with `leader_only`: as the leader)."""
    leader = view.leader
    behind = view.commit_index - view.applied_index
    absent = view.waiting_for()
    checks = [
        *liveness(view),
        Check(
            "cluster",
            not absent,
            waiting_words(absent, view.rejoining) if absent else f"birth {view.birth[:8]}",
        ),
        Check("state", view.state == "serving", _state_words(view)),
        Check("leader", leader is not None, leader or "no leader is known"),
        Check("caught-up", view.caught_up, f"{behind} entries to apply"),
        Check("serving", view.serving, "ports open" if view.serving else "ports closed"),
        Check("draining", not view.draining, "yes" if view.draining else "no"),
        Check("disk", not view.disk_hangs, f"behind for {view.disk_lag_s:.1f} s"),
        Check("room", not view.disk_full, FULL_WORDS if view.disk_full else "the log can grow"),
        Check("rejoining", not view.rejoining, "yes" if view.rejoining else "no"),
    ]
    if leader_only:
        checks.append(Check("is-leader", view.role == "leader", f"role {view.role}"))
    return checks
