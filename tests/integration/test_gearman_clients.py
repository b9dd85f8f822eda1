"""Unmodified third-party Gearman clients from PyPI, at one node and at two followers.

Clients from Debian and npm are in `tests/clients`, which `make test-clients` runs.
"""

import pytest

from tests.clients.harness import PYTHON
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
from tests.clients.places import fresh, paper, place, workers

__all__ = [
    "fresh",
    "paper",
    "place",
    "test_background",
    "test_each_submits_to_each",
    "test_exceptions",
    "test_foreground",
    "test_priorities",
    "test_status",
    "test_unique_in_background",
    "test_unique_in_foreground",
    "workers",
]


@pytest.fixture(params=PYTHON, ids=repr)
def program(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=PYTHON, ids=repr)
def submitter(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(params=PYTHON, ids=repr)
def worker(request: pytest.FixtureRequest) -> object:
    return request.param
