"""Run the published tests of reqless 0.13.3 and of qless-py 0.11.4.

qless-py's tests fail on Redis since 6.2.7, which refuses its script; BEANPOLE_QLESS_SERVER=redis
runs both suites against the installed Redis.
"""

from pathlib import Path

import pytest

from tests.qless.suites import AGAINST_REDIS, QLESS_PY, REQLESS, Outcome, Place, run_suite

pytestmark = pytest.mark.timeout(300)

REQLESS_TESTS = 156
QLESS_PY_TESTS = 104
# These tests communicate by a list of Redis, `foo`, which is not a key of qless.
REQLESS_LIST = {"reqless_test.test_serial.TestWorker.test_lost_locks"}
QLESS_PY_LIST = {"test.test_serial.TestWorker.test_lost_locks"}
# Its group is the name of an exception, which Python has renamed in 3.6.
OTHER_PYTHON = {"test.test_job.TestJob.test_no_import"}


def story(outcome: Outcome) -> str:
    return "\n\n".join(f"{name}: {text}" for name, text in outcome.failed.items())


def test_reqless(place: Place, tmp_path: Path) -> None:
    outcome = run_suite(REQLESS, "reqless_test", place.address, tmp_path)
    expected = set[str]() if AGAINST_REDIS else REQLESS_LIST
    assert set(outcome.failed) == expected, story(outcome)
    assert not outcome.skipped
    assert len(outcome.passed) == REQLESS_TESTS - len(expected)


def test_qless_py(place: Place, tmp_path: Path) -> None:
    if AGAINST_REDIS:
        return
    outcome = run_suite(QLESS_PY, "test", place.address, tmp_path)
    assert set(outcome.failed) == OTHER_PYTHON | QLESS_PY_LIST, story(outcome)
    assert not outcome.skipped
    assert len(outcome.passed) == QLESS_PY_TESTS - len(OTHER_PYTHON | QLESS_PY_LIST)
