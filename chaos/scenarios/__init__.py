"""The scenarios, one per module: `act(nodes, chance)` applies a fault and returns a description.

The name of a module is that of its scenario, its first line describes the scenario, and the type
of `nodes` names the required abilities of a backend. Clients and judges are the same for all
(`rounds`).
"""

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, get_type_hints


class Scenario(NamedTuple):
    """One fault from begin to end, except for its healing.

    Attributes:
        name: the name of the module, with spaces.
        story: what happens, in one line.
        needs: the required abilities, as a runtime protocol.
        act: applies the fault to nodes with these abilities, at random; returns a description.
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
