"""All available Gearman clients, unmodified: each by itself, and each pair."""

import pytest

from tests.clients.libraries import ALL
from tests.clients.matrix import (
    test_background,
    test_each_submits_to_each,
    test_exceptions,
    test_foreground,
    test_priorities,
    test_status,
    test_unique_in_background,
    test_unique_in_foreground,
)

__all__ = [
    "test_background",
    "test_each_submits_to_each",
    "test_exceptions",
    "test_foreground",
    "test_priorities",
    "test_status",
    "test_unique_in_background",
    "test_unique_in_foreground",
]


@pytest.fixture(params=ALL, ids=repr)
def program(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=ALL, ids=repr)
def submitter(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=ALL, ids=repr)
def worker(request: pytest.FixtureRequest) -> object:
    return request.param
