"""Planted defects of kept sessions, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from typing import Any, Final

from beanpole.core.state import MachineState
from beanpole.events import CONNECTION_LOST
from beanpoled.frontends.clients import Clients
from tests.sim.mutant import Mutant, storm
from tests.sim.mutations import Patch


def nothing_is_kept() -> list[Patch]:
    """A lost session ends at once, whether it is to be kept or not."""
    end = vars(MachineState)["end_session"]

    def wrong(self: MachineState, session: Any, lost: bool, reason: int = CONNECTION_LOST) -> None:
        end(self, session, False, reason)

    return [(MachineState, "end_session", wrong)]


def resumed_without_its_jobs() -> list[Patch]:
    """A node does not see all jobs that a session it took over holds."""
    look = vars(Clients)["session"]

    def wrong(self: Clients, number: int) -> Any:
        found = look(self, number)
        if found is not None and found.epoch > 1:
            found.reserved = dict(list(found.reserved.items())[1:])
        return found

    return [(Clients, "session", wrong)]


KEEPERS: Final = (
    Mutant(
        "nothing_is_kept",
        "kept sessions: a loss ends them at once",
        storm,
        r"the session of keeper \d+ is gone|was given to keeper",
        nothing_is_kept,
        seed=3,
    ),
    Mutant(
        "resumed_without_its_jobs",
        "kept sessions: a job is forgotten on the way to another node",
        storm,
        r"keeper \d+ came back and lost|differ|was given to keeper",
        resumed_without_its_jobs,
        seed=3,
    ),
)
