"""Work in a thread of its own, where the system allows no more threads."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from beanpoled.trust.apart import apart
from beanpoled.trust.rereading import Rereading


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_thread_that_cannot_start_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="no more threads"):
        asyncio.run(apart("a name", lambda: 1))


def test_a_look_without_a_thread_is_told_once_and_tried_again() -> None:
    """The node ended, since an unexpected error of a task ends it."""
    told: list[str] = []
    certificates = SimpleNamespace(setting="tls_", look=lambda: None, reading="")
    trust: Any = SimpleNamespace(certificates=lambda: [certificates])
    rereading = Rereading(trust, lambda line, *_: told.append(line))
    for _ in range(2):
        asyncio.run(rereading.look())
    (line,) = told
    assert line.startswith("tls_* files: the system allows no more threads; the certificates that")
