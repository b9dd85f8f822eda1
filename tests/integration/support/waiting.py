"""Waiting for conditions: the only place of the integration tests where time passes on purpose.

The conditions belong to the tests.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

# Short enough not to prolong a test, long enough to leave the cores to the nodes.
POLL_S: Final = 0.01

T = TypeVar("T")

_NEVER = threading.Event()


def wait_until(condition: Callable[[], T], timeout_s: float, what: str = "") -> T:
    """Call `condition` until it returns something true, and return that.

    Args:
        condition: called every few milliseconds. ConnectionError and TimeoutError count as
            "not yet", since most conditions ask a node that may be down.
        timeout_s: limit in seconds; exceeding it is an AssertionError.
        what: a description for that error's message.
    """
    end = time.monotonic() + timeout_s
    failure: Exception | None = None
    while True:
        try:
            found = condition()
            if found:
                return found
            failure = None
        except (ConnectionError, TimeoutError) as error:
            failure = error
        late = time.monotonic() >= end
        assert not late, f"not within {timeout_s} s: {what or condition!r} ({failure!r})"
        _NEVER.wait(POLL_S)


def wait_for_time(seconds: float) -> None:
    """Let time pass, for tests whose subject is a delay, a TTR or a pause of that length."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 60)
