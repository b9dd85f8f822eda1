"""Check the requirements of the tests of the unit; fail without them."""

import pytest

from tests.systemd.machine import missing


@pytest.fixture(scope="session", autouse=True)
def complete() -> None:
    absent = missing()
    if absent:
        pytest.fail("missing: " + "; ".join(absent), pytrace=False)
