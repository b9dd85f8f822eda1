"""Planted defects of the machine's version, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from collections.abc import Iterator
from typing import Any, Final

from beanpole.core.image import restore
from beanpole.core.image.image import Image
from beanpole.core.image.parts import PARTS
from beanpole.core.machine import Machine
from beanpoled.leading.term import Term
from beanpoled.leading.versions import Versions
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from tests.sim import next_release
from tests.sim import schedules_versions as v
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing


def version_of_program() -> list[Patch]:
    """A machine begins at the version of its program, not at the base."""
    begin = vars(Versions)["__init__"]

    def wrong(self: Versions, context: Context, peers: Peers, term: Term) -> None:
        begin(self, context, peers, term)
        context.machine.activate(context.knows)

    return [(Versions, "__init__", wrong)]


def unknown_is_upgraded() -> list[Patch]:
    """A member without a heartbeat in this term knows what the leader knows."""

    def wrong(self: Versions) -> int:
        peers = self._peers.peers.values()
        term = self._context.replica.term
        heard = [
            peer for peer in peers if peer.heartbeat is not None and peer.heartbeat.term == term
        ]
        return min((peer.knows for peer in heard), default=self._context.knows)

    return [(Versions, "common", wrong)]


def raise_ignored() -> list[Patch]:
    """A program that does not know the version of a RAISE continues."""
    return [(Versions, "raised", nothing)]


def raised_too_early() -> list[Patch]:
    """One member that knows a version is enough to raise it."""
    return [(Versions, "common", lambda self: max(self.known().values()))]


def operator_ignored() -> list[Patch]:
    """A leader with `manual` raises as if an operator asked at every moment."""
    due = vars(Versions)["due"]

    def wrong(self: Versions) -> Any:
        self.finalize(0)
        return due(self)

    return [(Versions, "due", wrong)]


def wish_remembered() -> list[Patch]:
    """A refused request is granted when the absent member comes back."""
    due, finalize = vars(Versions)["due"], vars(Versions)["finalize"]

    def wish(self: Versions, to: int) -> Any:
        vars(self)["wish"] = to
        return finalize(self, to)

    def wrong(self: Versions) -> Any:
        if "wish" in vars(self):
            finalize(self, vars(self)["wish"])
        return due(self)

    return [(Versions, "due", wrong), (Versions, "finalize", wish)]


def no_raise_awaited() -> list[Patch]:
    """A node accepts clients as soon as its NODE_UP is applied."""
    return [(Versions, "coming", lambda self: self._context.machine.version)]


def each_raise_awaited() -> list[Patch]:
    """A node waits for a RAISE while a member that must agree is older, or away."""
    return [(Versions, "coming", lambda self: self._context.knows)]


def ungated_change() -> list[Patch]:
    """A newer program changes how it applies entries before the RAISE."""

    def wrong(machine: Machine) -> bool:
        return next_release.program(machine) >= next_release.VERSION

    return [(next_release, "is_active", wrong)]


def old_image_unreadable() -> list[Patch]:
    """A newer program expects its part in every image."""
    load = vars(restore)["_load_parts"]

    def wrong(machine: Machine, chunks: Iterator[bytes]) -> None:
        version = machine.version
        machine.version = next_release.VERSION
        load(machine, chunks)
        machine.version = version

    return [(restore, "_load_parts", wrong)]


def image_of_the_program() -> list[Patch]:
    """A newer program writes its part into every image."""
    begin = vars(Image)["__init__"]

    def wrong(self: Image, machine: Machine) -> None:
        begin(self, machine)
        if next_release.program(machine) >= next_release.VERSION:
            vars(self)["_parts"] = [(kind, [0]) for kind in PARTS]

    return [(Image, "__init__", wrong)]


VERSIONS: Final = (
    Mutant(
        "raised_too_early",
        "versions: one member that knows a version is enough",
        v.a_node_is_away_while_the_others_are_upgraded,
        rf"need machine version {v.NEW}",
        raised_too_early,
    ),
    Mutant(
        "operator_ignored",
        "versions: a leader ends an upgrade that is for an operator to end",
        v.an_operator_ends_the_upgrade,
        rf"works at machine version {v.NEW}, not {v.OLD}",
        operator_ignored,
    ),
    Mutant(
        "wish_remembered",
        "versions: a refused wish is granted later",
        v.a_refused_wish_is_forgotten,
        rf"works at machine version {v.NEW}, not {v.OLD}",
        wish_remembered,
    ),
    Mutant(
        "no_raise_awaited",
        "versions: a new cluster accepts clients before it is raised",
        v.clients_of_a_new_cluster_miss_nothing,
        r"accepts clients at machine version",
        no_raise_awaited,
    ),
    Mutant(
        "each_raise_awaited",
        "versions: a node waits for a RAISE while a member is older or away",
        v.nodes_wait_for_no_raise_that_cannot_come,
        r"waits for a RAISE that cannot come",
        each_raise_awaited,
    ),
    Mutant(
        "ungated_change",
        "versions: a newer program applies entries in its own way before the RAISE",
        v.a_change_waits_for_the_raise,
        r"the machine of n\d differs after index",
        ungated_change,
    ),
    Mutant(
        "old_image_unreadable",
        "versions: a newer program does not read the image of the older one",
        v.snapshots_of_both_versions_are_read,
        r"does not start: .*image",
        old_image_unreadable,
    ),
    Mutant(
        "image_of_the_program",
        "versions: a newer program writes an image that the older one does not read",
        v.snapshots_of_both_versions_are_read,
        r"does not start: .*image|image .* differs",
        image_of_the_program,
    ),
    Mutant(
        "version_of_program",
        "versions: a machine begins at the newest version of its program",
        v.one_node_is_upgraded,
        rf"works at machine version {v.NEW}|image of .* differs|differs after",
        version_of_program,
    ),
    Mutant(
        "unknown_is_upgraded",
        "versions: a member that announced nothing counts as upgraded",
        v.an_upgraded_node_leads_before_it_has_heard,
        rf"need machine version {v.NEW}",
        unknown_is_upgraded,
    ),
    Mutant(
        "raise_ignored",
        "versions: a program goes on that does not know the version",
        v.an_old_program_comes_back_after_the_raise,
        r"did not stop",
        raise_ignored,
    ),
)
