"""Fixtures of the tests of `core`."""

import pytest

from tests.unit.core.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Return a machine with one session, number 1 of origin 0."""
    cluster = Cluster()
    cluster.open(1)
    return cluster
