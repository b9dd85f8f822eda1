"""The backends that run the nodes, by name: `python -m chaos.rounds NAME`.

Each is a `nemesis.Backend`; its methods determine which scenarios it supports.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from chaos import engine, images
from chaos.backends import namespaces
from chaos.backends.contained import Contained
from chaos.backends.namespaces import Namespaces
from chaos.backends.processes import Processes, Releases
from chaos.backends.toxiproxy import Toxiproxy
from chaos.nemesis import Backend


class Place(NamedTuple):
    """One kind of backend.

    Attributes:
        kind: the class, whose methods determine its abilities.
        make: creates it in a folder; `compiled`: with the nodes of build/compiled.
        missing: returns why it cannot be used here, in one line; empty if it can.
    """

    kind: type[Backend]
    make: Callable[[Path, bool], Backend]
    missing: Callable[[], str]


def nothing() -> str:
    return ""


def no_containers() -> str:
    return ("" if engine.answers() else engine.missing()) or images.missing()


ALL: Final = {
    "processes": Place(Processes, Processes, nothing),
    "releases": Place(Releases, Releases, nothing),
    "toxiproxy": Place(Toxiproxy, Toxiproxy, nothing),
    "namespaces": Place(Namespaces, Namespaces, namespaces.missing),
    "containers": Place(Contained, lambda directory, _: Contained(directory), no_containers),
}
