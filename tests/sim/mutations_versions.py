"""Planted defects of the machine's version, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from typing import Final

from beanpoled.leading.term import Term
from beanpoled.leading.versions import Versions
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
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


def unheard_is_known() -> list[Patch]:
    """A member that was not heard in this term knows what the leader knows."""

    def wrong(self: Versions) -> int:
        peers = self._peers.peers.values()
        term = self._context.replica.term
        heard = [peer for peer in peers if peer.beat is not None and peer.beat.term == term]
        return min((peer.knows for peer in heard), default=self._context.knows)

    return [(Versions, "common", wrong)]


def raise_ignored() -> list[Patch]:
    """A program that does not know the version of a RAISE goes on all the same."""
    return [(Versions, "raised", nothing)]


VERSIONS: Final = (
    Mutant(
        "version_of_program",
        "versions: a machine begins at what its program knows",
        v.one_node_is_upgraded,
        r"works at machine version 3|image of .* differs|differs after",
        version_of_program,
    ),
    Mutant(
        "unheard_is_known",
        "versions: who was not heard counts as upgraded",
        v.an_upgraded_node_leads_before_it_has_heard,
        r"need machine version 3",
        unheard_is_known,
    ),
    Mutant(
        "raise_ignored",
        "versions: a program goes on that does not know the version",
        v.an_old_program_comes_back_after_the_raise,
        r"did not stop",
        raise_ignored,
    ),
)
