"""The scenarios, one a file: `act(nodes, chance)` does a fault and returns a few words about it.

A file's name is the scenario's, its first line says what happens, and the type of `nodes` says
which abilities it needs of a backend. Clients and judges are the same for all (`rounds`).
"""

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, get_type_hints


class Scenario(NamedTuple):
    """One fault from begin to end, but for its healing.

    Attributes:
        name: of the file, with spaces.
        story: what happens, in one line.
        needs: the abilities, as a runtime protocol.
        act: does it to nodes that have the abilities, as chance decides; returns a few words.
    """

    name: str
    story: str
    needs: type
    act: Callable[[Any, random.Random], str]


def _find() -> Iterator[Scenario]:
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if found.name == "common":
            continue
        story = (module.__doc__ or "").partition("\n")[0]
        needs = get_type_hints(module.act)["nodes"]
        yield Scenario(found.name.replace("_", " "), story, needs, module.act)


ALL: Final = {scenario.name: scenario for scenario in _find()}


def possible(backend: type) -> dict[str, Scenario]:
    """Return the scenarios for which a class of backends has all abilities."""
    return {name: one for name, one in ALL.items() if issubclass(backend, one.needs)}
