"""Start threads that the end of the process does not wait for."""

import errno
import threading
from collections.abc import Callable


def start_daemon(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that runs until `run` returns, or until the process ends.

    Raises:
        OSError: the system allows no more threads. `threading` raises RuntimeError, as for a bug.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "the system allows no more threads") from None
    return thread
