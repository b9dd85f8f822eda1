"""How the synchronous and the asyncio client perform the steps that concern names."""

import asyncio
from typing import Any

import pytest

from beanpole.client import aio_wire, blocking_wire
from beanpole.client.sansio.steps import Endpoint, Resolve, Steps


def resolving(*asked: Resolve) -> Steps[list[Endpoint]]:
    found: list[Endpoint] = []
    for one in asked:
        found += yield one
    return found


def run(kind: Any, steps: Steps[Any], **settings: Any) -> Any:
    wire = kind(**settings)
    done = wire.run(steps)
    return asyncio.run(done) if kind is aio_wire.Wire else done


WIRES = pytest.mark.parametrize("kind", [blocking_wire.Wire, aio_wire.Wire])


@WIRES
def test_a_link_local_address_keeps_its_zone(kind: Any) -> None:
    assert run(kind, resolving(Resolve("fe80::1%1", 80))) == [Endpoint("fe80::1%1", 80)]
    assert run(kind, resolving(Resolve("::1", 80))) == [Endpoint("::1", 80)]
    assert run(kind, resolving(Resolve("127.0.0.1", 80))) == [Endpoint("127.0.0.1", 80)]
