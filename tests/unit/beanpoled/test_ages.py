"""How long ago something was, as `inspect` and `backup show` say it."""

import time

import pytest

from beanpoled.cli.inspect import age

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("passed_s", "words"),
    [
        (3 * 86_400, "3 days ago"),
        (119, "119 seconds ago"),
        (0.4, "0 seconds ago"),
        (-0.4, "0 seconds ago"),
        (-90, "90 seconds in the future by this machine's clock"),
        (-86_393, "24 hours in the future by this machine's clock"),
    ],
)
def test_a_time_in_the_future_is_called_that(
    monkeypatch: pytest.MonkeyPatch, passed_s: float, words: str
) -> None:
    """It was "-86393 seconds ago"."""
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    assert age(NOW_S - passed_s).partition(", ")[2] == words


def test_what_was_never_written() -> None:
    assert age(0) == "never"
