"""Unit tests have no limits of time that a busy machine would miss: see `conftest`."""

from hypothesis import HealthCheck, settings


def test_examples_may_take_as_long_as_they_want() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
