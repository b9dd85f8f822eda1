"""A program of the next release, in the simulation only, and the changes of its machine version.

It changes the formula of the state hash, which is the worst change to make without a condition,
and its machine stores the index at which it was raised, in a part of the image. All nodes share one
process and one code, so old programs run the code of the next release, too; its conditions must
hide that. The version that a program knows is noted on its machine, for the planted defects that
forget a condition.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from crc32c import crc32c

from beanpole.commands import BASE_VERSION, MACHINE_VERSION
from beanpole.core.applied import Applied
from beanpole.core.image.parts import PARTS, Part
from beanpole.core.machine import Machine
from beanpole.core.state import MachineState

VERSION: Final = MACHINE_VERSION + 1
_KIND: Final = "raised"


def note_program(machine: Machine, knows: int) -> None:
    """Note on a machine the newest version that its program knows."""
    vars(machine)["program"] = knows


def program(machine: Machine) -> int:
    """Return the newest version that the program of a machine knows."""
    known: int = vars(machine).get("program", BASE_VERSION)
    return known


def is_active(machine: Machine) -> bool:
    """Whether the change of `apply` is in force."""
    return machine.version >= VERSION


def _write(machine: MachineState) -> list[int]:
    return [vars(machine)["raised_index"]]


def _read(machine: MachineState, index: int) -> None:
    vars(machine)["raised_index"] = index


@contextmanager
def installed() -> Iterator[None]:
    """Install the next release's changes while the context lasts."""
    released = Machine.apply

    def apply(self: Machine, *arguments: Any) -> Applied:
        applied = released(self, *arguments)
        if is_active(self):
            self.state_hash = crc32c(b"next", self.state_hash)
            vars(self).setdefault("raised_index", self.index)
        return applied

    type.__setattr__(Machine, "apply", apply)
    PARTS[_KIND] = Part(VERSION, _write, _read)
    try:
        yield
    finally:
        del PARTS[_KIND]
        type.__setattr__(Machine, "apply", released)
