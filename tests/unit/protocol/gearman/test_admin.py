"""Gearman's text commands: parsed lines, and the texts of errors."""

import pytest

from beanpole.protocol.gearman import admin, replies

TOO_LARGE = b"ERR INVALID_ARGUMENTS A+function+name+has+512+bytes+at+most\r\n"
INCOMPLETE = b"ERR INVALID_ARGUMENTS An+incomplete+set+of+arguments+was+sent+to+this+command+%b\r\n"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"status", (admin.STATUS, ())),
        (b"STATUS", (admin.STATUS, ())),
        (b"Status and more", (admin.STATUS, ())),
        (b"prioritystatus", (admin.PRIORITY_STATUS, ())),
        (b"workers", (admin.WORKERS, ())),
        (b"version x", (admin.VERSION, ())),
        (b"getpid", (admin.PID, ())),
        (b"verbose", (admin.VERBOSE, ())),
        (b"shutdown", (admin.SHUTDOWN, ())),
        (b"shutdown graceful", (admin.SHUTDOWN, ())),
        (b"maxqueue f", (admin.MAX_QUEUE, (b"f",))),
        (b"maxqueue f  10", (admin.MAX_QUEUE, (b"f", b"10"))),
        (b"maxqueue f 1 2 3 4", (admin.MAX_QUEUE, (b"f", b"1", b"2", b"3"))),
        (b"create function f", (admin.CREATE_FUNCTION, (b"f",))),
        (b"create function " + b"x" * 512, (admin.CREATE_FUNCTION, (b"x" * 512,))),
        (b"Drop Function F", (admin.DROP_FUNCTION, (b"F",))),
        (b"show jobs", (admin.SHOW_JOBS, ())),
        (b"Show  Unique JOBS", (admin.SHOW_UNIQUE_JOBS, ())),
        (b"cancel job H:x:1", (admin.CANCEL_JOB, (b"H:x:1",))),
        (b"create function nul\0RESx", (admin.CREATE_FUNCTION, (b"nul",))),
        (b"Drop\0x function\0 nul\0\0", (admin.DROP_FUNCTION, (b"nul",))),
        (b"create function \0f", (admin.CREATE_FUNCTION, (b"",))),
        (b"status\0x", (admin.STATUS, ())),
        (b"maxqueue f\0x 3\0x", (admin.MAX_QUEUE, (b"f", b"3"))),
        (b"status ", (admin.STATUS, ())),
        (b"maxqueue ", (admin.MAX_QUEUE, (b"",))),
        (b"maxqueue f 1 ", (admin.MAX_QUEUE, (b"f", b"1", b""))),
        (b"create function ", (admin.CREATE_FUNCTION, (b"",))),
        (b"cancel  job  H:x:1", (admin.CANCEL_JOB, (b"H:x:1",))),
        (b"cancel job  ", (admin.CANCEL_JOB, (b"",))),
        (b"auth  token ", (admin.AUTH, (b"token",))),
    ],
)
def test_commands(line: bytes, command: admin.Command) -> None:
    assert admin.read(line) == command


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"", b"ERR UNKNOWN_COMMAND Unknown+server+command\r\n"),
        (b"  ", b"ERR UNKNOWN_COMMAND Unknown+server+command\r\n"),
        (b" status", b"ERR UNKNOWN_COMMAND Unknown+server+command\r\n"),
        (b"nosuch word", b"ERR UNKNOWN_COMMAND Unknown+server+commandnosuch\r\n"),
        (b"stat\0us", b"ERR UNKNOWN_COMMAND Unknown+server+commandstat\r\n"),
        (b"create function f\0 x", INCOMPLETE % b"create"),
        (b"show", b"ERR UNKNOWN_COMMAND Unknown+server+commandshow\r\n"),
        (b"show x", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"show jobs x", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"show unique", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"cancel", b"ERR UNKNOWN_COMMAND Unknown+server+commandcancel\r\n"),
        (b"cancel job", b"ERR UNKNOWN_COMMAND Unknown+server+commandcancel\r\n"),
        (b"cancel x y", b"ERR UNKNOWN_ERROR\r\n"),
        (b"cancel ", b"ERR UNKNOWN_COMMAND Unknown+server+commandcancel\r\n"),
        (b"cancel x ", b"ERR UNKNOWN_ERROR\r\n"),
        (b"cancel job H:x:1 ", b"ERR UNKNOWN_ERROR\r\n"),
        (b"show ", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"show jobs ", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"show unique jobs  ", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"show jobs \0x", b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"),
        (b"create function f ", INCOMPLETE % b"create"),
        (b"drop function f ", INCOMPLETE % b"drop"),
        (b"create ", INCOMPLETE % b"create"),
        (b"auth ", b"ERR UNKNOWN_COMMAND Unknown+server+commandauth\r\n"),
        (b"auth a b", b"ERR UNKNOWN_COMMAND Unknown+server+commandauth\r\n"),
        (b"maxqueue", INCOMPLETE % b"maxqueue"),
        (b"create", INCOMPLETE % b"create"),
        (b"create function", INCOMPLETE % b"create"),
        (b"create x", INCOMPLETE % b"create"),
        (b"create function a b", INCOMPLETE % b"create"),
        (b"drop", INCOMPLETE % b"drop"),
        (b"create function " + b"x" * 513, TOO_LARGE),
        (b"drop function " + b"x" * 513, TOO_LARGE),
    ],
)
def test_what_is_no_command(line: bytes, reply: bytes) -> None:
    assert admin.read(line) == (admin.WRONG, (reply,))


def test_bounds_of_queues() -> None:
    assert admin.limits(()) == (0, 0, 0)
    assert admin.limits((b"10",)) == (10, 10, 10), "one is for all"
    assert admin.limits((b"1", b"2")) == (1, 2, 0)
    assert admin.limits((b"1", b"2", b"3")) == (1, 2, 3)
    assert admin.limits((b"-1",)) == admin.limits((b"x",)) == (0, 0, 0)
    assert admin.limits((b"99999999999999999999",)) == (2**32 - 1,) * 3
    assert admin.limits((b"7x",)) == (7, 7, 7)
    assert admin.limits((b"\t7", b"+8")) == (7, 8, 0)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (b" 1500", 1500),
        (b"\t\n\v\f\r 1500", 1500),
        (b"+1500", 1500),
        (b" -1500", -1500),
        (b"1500 x", 1500),
        (b"+ 1500", 0),
        (b"+-1500", 0),
        (b"\0 1500", 0),
        (b" x", 0),
        (b" ", 0),
    ],
)
def test_numbers_are_read_as_by_atoi(word: bytes, value: int) -> None:
    assert admin.number(word) == value
    assert replies.u32(word) == value & 0xFFFFFFFF
