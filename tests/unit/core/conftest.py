"""Fixtures of the tests of `core`."""

from collections.abc import Iterator

import pytest

from tests.unit.core.cluster import Cluster, copy_of, image_of
from tests.unit.core.guests import Guests


@pytest.fixture
def cluster() -> Cluster:
    """Return a machine with one session, number 1 of origin 0."""
    cluster = Cluster()
    cluster.open(1)
    return cluster


@pytest.fixture
def guests() -> Iterator[Guests]:
    """Return a machine with sessions of all protocols; after the test, its image must be equal."""
    guests = Guests()
    yield guests
    assert image_of(copy_of(guests.machine)) == image_of(guests.machine)
