"""beanstalkd's own tests, restated: the syntax of commands, and the replies to errors.

The names come from its testserv.c. Tests of jobs are in test_beanstalkd_suite_jobs.
"""

from tests.integration.support.queues import Queue

BAD_FORMAT = b"BAD_FORMAT"
NOT_FOUND = b"NOT_FOUND"
PUT_BYTES_HUGE = 1024**3 + 1
SYMBOLS = b"!@#$%^&*()"
DIGITS = b"184467440737095516160000000000000000000000000000000000000000000000000000000000000000"


def test_unknown_command(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"nont10knowncommand", b"UNKNOWN_COMMAND")


def test_too_long_commandline(queue: Queue) -> None:
    client = queue.connect()
    for _ in range(10):
        client.send(b"0123456789" * 5)
    client.send(b"\r\n")
    client.expect(BAD_FORMAT)
    client.ask(b"put 0 0 1 1\r\nA", b"INSERTED %d" % queue.id(1))


def test_put_in_drain(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"list-tube-used", b"USING default")
    queue.drain()
    client.ask(b"put 0 0 1 1\r\nx", b"DRAINING")


def test_peek_ok(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"put 0 0 1 1\r\na", b"INSERTED %d" % queue.id(1))
    client.ask(b"peek %d" % queue.id(1), b"FOUND %d 1" % queue.id(1), b"a")


def test_peek_not_found(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"put 0 0 1 1\r\na", b"INSERTED %d" % queue.id(1))
    client.ask(b"peek %d" % queue.id(2), NOT_FOUND)
    client.ask(b"peek 18446744073709551615", NOT_FOUND)


def test_peek_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for number in (b"18446744073709551616", DIGITS, b"foo111", b"111foo"):
        client.ask(b"peek " + number, BAD_FORMAT)


def test_touch_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for number in (b"a111", b"111a", SYMBOLS):
        client.ask(b"touch " + number, BAD_FORMAT)


def test_touch_not_found(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"touch %d" % queue.id(1), NOT_FOUND)
    client.ask(b"touch 100000000000000", NOT_FOUND)


def test_bury_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for arguments in (b"111abc 2", b"111", b"111 222abc"):
        client.ask(b"bury " + arguments, BAD_FORMAT)


def test_kickjob_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for number in (b"a111", b"111a", SYMBOLS):
        client.ask(b"kick-job " + number, BAD_FORMAT)


def test_underscore(queue: Queue) -> None:
    queue.connect().ask(b"use x_y", b"USING x_y")


def test_2cmdpacket(queue: Queue) -> None:
    client = queue.connect()
    client.send(b"use a\r\nuse b\r\n")
    client.expect(b"USING a", b"USING b")


def test_too_big(small_queue: Queue) -> None:
    # Text inside an oversized body that looks like a command must not be executed.
    client = small_queue.connect()
    size = small_queue.job_size_max + 1
    body = (b"delete 9999\r\n" * (size // 13 + 1))[:size]
    client.ask(b"put 0 0 0 %d\r\n%b" % (size, body), b"JOB_TOO_BIG")
    client.ask(b"put 0 0 0 1\r\nx", b"INSERTED %d" % small_queue.id(1))


def test_job_size_invalid(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"put 0 0 0 4294967296", BAD_FORMAT)
    client.ask(b"put 0 0 0 10b", BAD_FORMAT)
    client.ask(b"put 0 0 0 --!@#$%^&&**()0b", BAD_FORMAT)
    client.ask(b"put 0 0 0 1\r\nx", b"INSERTED %d" % queue.id(1))


def test_job_size_max_plus_1(queue: Queue) -> None:
    client = queue.connect()
    client.send(b"put 0 0 0 %d\r\n" % PUT_BYTES_HUGE)
    block = memoryview(bytes(1024**2))
    for at in range(0, PUT_BYTES_HUGE, len(block)):
        client.stream.sendall(block[: min(len(block), PUT_BYTES_HUGE - at)])
    client.send(b"\r\n")
    client.expect(b"JOB_TOO_BIG")


def test_delete_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for number in (b"18446744073709551616", DIGITS, b"foo111", b"111foo"):
        client.ask(b"delete " + number, BAD_FORMAT)


def test_negative_delay(queue: Queue) -> None:
    queue.connect().ask(b"put 512 -1 100 0", BAD_FORMAT)


def test_garbage_priority(queue: Queue) -> None:
    queue.connect().ask(b"put -1kkdj9djjkd9 0 100 1", BAD_FORMAT)


def test_negative_priority(queue: Queue) -> None:
    queue.connect().ask(b"put -1 0 100 1", BAD_FORMAT)


def test_max_priority(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"put 4294967295 0 100 1\r\nx", b"INSERTED %d" % queue.id(1))


def test_too_big_priority(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"put 4294967296 0 100 1", BAD_FORMAT)
    client.ask(b"put 4294967295 0 100 1\r\nx", b"INSERTED %d" % queue.id(1))


def test_statsjob_ck_format(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"stats-job 111ABC", BAD_FORMAT)
    client.ask(b"stats-job 111 222", BAD_FORMAT)
    client.ask(b"stats-job %d" % queue.id(111), NOT_FOUND)


def test_release_bad_format(queue: Queue) -> None:
    client = queue.connect()
    for number in (b"18446744073709551616", DIGITS, b"foo111", b"111foo"):
        client.ask(b"release %b 1 1" % number, BAD_FORMAT)
    for arguments in (b"1 18446744073709551616 1", b"1 foo 1", b"1 1 foo", b"1 1 -1", b"1 1", b"1"):
        client.ask(b"release " + arguments, BAD_FORMAT)


def test_release_not_found(queue: Queue) -> None:
    client = queue.connect()
    client.ask(b"release %d 1 1" % queue.id(1), NOT_FOUND)


def test_use_tube_long(queue: Queue) -> None:
    client = queue.connect()
    name = b"0123456789" * 20
    client.ask(b"use " + name, b"USING " + name)
    client.ask(b"use " + name + b"Z", BAD_FORMAT)


def test_longest_command(queue: Queue) -> None:
    client = queue.connect()
    name = b"0123456789" * 20
    client.ask(b"use " + name, b"USING " + name)
    command = b"pause-tube " + name + b" 4294967295"
    assert len(command) == 222
    client.ask(command, b"PAUSED")
