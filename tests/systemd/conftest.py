"""What the tests of the unit need; they fail where it is missing."""

import pytest

from tests.systemd.machine import missing


@pytest.fixture(scope="session", autouse=True)
def complete() -> None:
    absent = missing()
    if absent:
        pytest.fail("missing: " + "; ".join(absent), pytrace=False)
