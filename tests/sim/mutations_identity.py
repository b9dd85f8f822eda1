"""Planted defects of the rules about disks and their identity; see `mutations`."""

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
    """A disk that began with --rejoin is treated like one that began without."""
    fresh = Disks._fresh

    def wrong(self: Disks, found: DiskIdentity | None, *rest: Any) -> DiskIdentity:
        return fresh(self, None, *rest)

    return [(Disks, "_fresh", wrong), *any_birth()]


def any_birth() -> list[Patch]:
    """An empty disk joins any cluster, with a vote."""
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
    """The existence of a log is not recorded."""
    return [(Disks, "note_log", nothing)]


def older_life() -> list[Patch]:
    """Incarnations are not compared."""
    judge = admission.judge

    def wrong(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        return judge(own, hello, known._replace(incarnation=0))

    return [(admission, "judge", wrong)]


def life_told_late() -> list[Patch]:
    """The beginning of a node's life is reported like a command of its clients."""
    return [(proposing, "NODE_UP_NUMBER", -1)]


def older_moment() -> list[Patch]:
    """Logs are not compared."""
    return [(Introductions, "kept_index", lambda self: 0)]


def older_votes() -> list[Patch]:
    """A refused older copy is treated like any other refused disk."""
    return [(introductions, "OLDER", -1)]


def two_found() -> list[Patch]:
    """A majority of empty disks is enough to found a cluster."""
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
    """A disk accepts any list of members."""
    return [(disks, "_check_members", nothing)]


def one_refusal() -> list[Patch]:
    """A starting node ends when any member refuses it."""
    return [(admission, "is_hopeless", lambda own, refusals: bool(refusals))]


def any_life() -> list[Patch]:
    """Birth ids are not compared."""
    judge = admission.judge

    def wrong(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
        if own.birth and hello.birth:
            return Verdict(admission.TALK)
        return judge(own, hello, known)

    return [(admission, "judge", wrong)]
