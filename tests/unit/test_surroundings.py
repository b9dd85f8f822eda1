"""Unit tests are independent of their surroundings: see `conftest`."""

import os

from hypothesis import HealthCheck, settings

from tests.unit.golden.script import SETTING


def test_examples_may_take_as_long_as_they_want() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_the_cluster_of_the_user_is_hidden() -> None:
    assert not [name for name in os.environ if name.startswith("BEANPOLE_") and name != SETTING]
