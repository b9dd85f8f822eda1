"""Options: set, unset, announced, and read as numbers with their defaults."""

import pytest

from beanpole import qless as q
from beanpole.core.qless import config, limits
from tests.unit.core.qless.making import empty_tables

AS = q.CORE


def test_an_option_is_set_and_unset() -> None:
    t = empty_tables()
    assert config.config_set(t, AS, 0.0, (b"heartbeat", b"10")) == (q.OK, None)
    assert config.config_get(t, AS, 0.0, (b"heartbeat",)) == (q.OK, b"10")
    assert config.config_all(t, AS, 0.0, ()) == (q.OK, ((b"heartbeat", b"10"),))
    assert config.number(t, b"heartbeat", 1.0) == 10.0
    assert config.config_unset(t, AS, 0.0, (b"heartbeat",)) == (q.OK, None)
    assert config.config_get(t, AS, 0.0, (b"heartbeat",)) == (q.OK, None)
    assert config.number(t, b"heartbeat", 1.0) == 60.0
    assert config.number(t, b"other", 1.0) == 1.0
    log = b"log"
    assert t.messages == [
        (log, ((b"event", b"config_set"), (b"option", b"heartbeat"), (b"value", b"10"))),
        (log, ((b"event", b"config_unset"), (b"option", b"heartbeat"))),
    ]


@pytest.mark.parametrize("value", [b"", b"ten", b"1_0", b"nan", b"inf", b"-inf", b"1e300", b"\xff"])
def test_what_is_no_number_counts_as_not_set(value: bytes) -> None:
    t = empty_tables()
    for option in (b"heartbeat", b"other"):
        config.config_set(t, AS, 0.0, (option, value))
    assert config.number(t, b"heartbeat", 1.0) == 60.0
    assert config.number(t, b"other", 1.0) == 1.0


def test_too_many_options_are_refused() -> None:
    t = empty_tables()
    for number in range(q.OPTIONS_MAX):
        config.config_set(t, AS, 0.0, (b"%d" % number, b""))
    t.messages.clear()
    assert config.config_set(t, AS, 0.0, (b"new", b""))[0] == q.TOO_MUCH
    assert not t.messages
    assert config.config_set(t, AS, 0.0, (b"7", b"x")) == (q.OK, None)


def test_all_options_fit_into_one_answer() -> None:
    t = empty_tables()
    for number in range(q.ANSWER_MAX_BYTES // q.NAME_MAX_BYTES):
        t.set_option(b"%d" % number, b"x" * q.NAME_MAX_BYTES)
    assert config.config_all(t, AS, 0.0, ()) == limits.ANSWER
