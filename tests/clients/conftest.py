"""Check the requirements of the tests of Gearman clients from Debian and npm; fail without them."""

import pytest

from tests.clients.libraries import missing
from tests.clients.places import fresh, paper, place, workers
from tests.integration.conftest import shared

pytest.register_assert_rewrite("tests.clients.matrix")

__all__ = ["fresh", "paper", "place", "shared", "workers"]


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    absent = missing()
    if absent:
        pytest.fail("not installed: " + "; ".join(absent), pytrace=False)
