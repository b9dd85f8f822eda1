"""Planted defects of what decides which disk may do what; see `mutations`."""

from collections.abc import Mapping
from typing import Any

from beanpoled.disk import disks
from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import DiskIdentity, Founders, birth_of
from beanpoled.leading import proposing
from beanpoled.links import admission
from beanpoled.links.admission import Known, Verdict
from beanpoled.links.link import Hello
from beanpoled.turn import introductions
from beanpoled.turn.introductions import Introductions
from tests.sim.mutations import Patch, nothing


def forgotten_flag() -> list[Patch]:
    """A disk that was begun with --rejoin is no other than one that was begun without."""
    fresh = Disks._fresh

    def wrong(self: Disks, found: DiskIdentity | None, *rest: Any) -> DiskIdentity:
        return fresh(self, None, *rest)

    return [(Disks, "_fresh", wrong), *any_birth()]


def any_birth() -> list[Patch]:
    """An empty disk joins whatever cluster there is, with a vote."""
    judge = admission.judge

    def wrong(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        verdict = judge(own, hello, known)
        return verdict if verdict.kind != admission.REFUSE else Verdict(admission.WAIT)

    def talk(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        if own.birth and hello.birth == own.birth:
            return Verdict(admission.TALK)
        return wrong(own, hello, known)

    return [(admission, "judge", talk)]


def log_not_noted() -> list[Patch]:
    """Nobody remembers that there was a log."""
    return [(Disks, "note_log", nothing)]


def older_life() -> list[Patch]:
    """Nobody compares incarnations."""
    judge = admission.judge

    def wrong(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        return judge(own, hello, known._replace(incarnation=0))

    return [(admission, "judge", wrong)]


def life_told_late() -> list[Patch]:
    """That a node begins a life is told like a command of its clients."""
    return [(proposing, "NODE_UP_NUMBER", -1)]


def older_moment() -> list[Patch]:
    """Nobody compares logs."""
    return [(Introductions, "kept_index", lambda self: 0)]


def older_votes() -> list[Patch]:
    """A refused copy is a disk like any other that is refused."""
    return [(introductions, "OLDER", -1)]


def two_found() -> list[Patch]:
    """A majority of empty disks is enough to begin a cluster."""
    founding = admission.founding

    def wrong(own: DiskIdentity, met: Mapping[str, Hello]) -> tuple[bytes, Founders] | None:
        found = founding(own, met)
        empty = [hello for hello in met.values() if not hello.birth]
        if found is None and empty and own.standing == "founding":
            founders = tuple(
                sorted([(own.node, own.disk_id), *((it.node, it.disk_id) for it in empty)])
            )
            return birth_of(own.cluster, founders), founders
        return found

    return [(admission, "founding", wrong)]


def any_list() -> list[Patch]:
    """A disk takes any list of members."""
    return [(disks, "_check_members", nothing)]


def one_refusal() -> list[Patch]:
    """A node that starts ends when anybody refuses it."""
    return [(admission, "is_hopeless", lambda own, refusals: bool(refusals))]


def any_life() -> list[Patch]:
    """Birth ids are not compared."""
    judge = admission.judge

    def wrong(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        if own.birth and hello.birth:
            return Verdict(admission.TALK)
        return judge(own, hello, known)

    return [(admission, "judge", wrong)]
