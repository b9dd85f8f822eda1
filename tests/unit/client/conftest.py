"""Fixtures of tests of kept sessions."""

import pytest

from tests.unit.client.kept import A, B, Cluster
from tests.unit.client.pretended import World


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def world(cluster: Cluster) -> World:
    found = World()
    found.nodes = {A: cluster, B: cluster}
    return found
