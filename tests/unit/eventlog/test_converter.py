"""The converter process: same results as in this process, and unnoticed restarts."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pytest

from beanpoled.eventlog import columns
from beanpoled.eventlog import converter as converter_module
from beanpoled.eventlog.converter import NICENESS, OOM_SCORE, Converter
from beanpoled.eventlog.events import EventBatch
from tests.integration.support.processes import children, is_running
from tests.integration.support.waiting import wait_until
from tests.unit.eventlog.made import chance

pytestmark = pytest.mark.slow


@pytest.fixture
def converter() -> Iterator[Converter]:
    with closing(Converter()) as found:
        yield found


def test_it_makes_what_would_be_made_here(converter: Converter) -> None:
    events = chance(3, columns.BATCH_ROWS + 10, 7)
    batches = columns.encode(events)
    assert converter.encode(events) == batches
    # The node passes growing buffers.
    growing = events._replace(records=bytearray(events.records), notes=bytearray(events.notes))
    assert converter.encode(growing) == batches
    middle = batches[1].wall_us_max
    payload = batches[1].payload
    assert converter.first_at_wall(payload, middle) == columns.first_at_wall(payload, middle)
    assert converter.first_at_wall(payload, middle + 1) is None


def test_one_that_was_killed_is_started_again(converter: Converter) -> None:
    events = chance(4, 10, 0)
    expected = converter.encode(events)
    for _ in range(3):
        (pid,) = children(os.getpid())
        assert os.getpriority(os.PRIO_PROCESS, pid) >= NICENESS
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == f"{OOM_SCORE}\n"
        os.kill(pid, signal.SIGKILL)
        assert converter.encode(events) == expected


def test_what_cannot_be_converted_is_said_and_harms_nothing_else(converter: Converter) -> None:
    events = chance(5, 10, 0)
    with pytest.raises(OSError, match="KeyError"):
        converter.encode(events._replace(names={}))
    with pytest.raises(OSError, match="Arrow"):
        converter.first_at_wall(b"no stream", 0)
    (pid,) = children(os.getpid())
    assert converter.encode(events) == columns.encode(events)
    assert children(os.getpid()) == [pid]


def test_signals_to_the_whole_group_leave_it_to_the_node(converter: Converter) -> None:
    events = chance(6, 10, 0)
    converter.encode(events)
    (pid,) = children(os.getpid())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(pid, number)
    converter.encode(events)
    assert children(os.getpid()) == [pid]


LIFE = """
import sys
from beanpoled.eventlog.converter import Converter
converter = Converter()
converter.warm_up()
print(converter._process.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_node_however_that_ends() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LIFE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    pid = int(process.stdout.readline())
    assert is_running(pid)
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()
    wait_until(lambda: not is_running(pid), 30, "the converter of a killed node ends")


def test_one_that_does_not_answer_is_killed(
    converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = chance(7, 10, 0)
    expected = converter.encode(events)
    (pid,) = children(os.getpid())
    os.kill(pid, signal.SIGSTOP)
    start = converter_module._start

    def start_anew() -> subprocess.Popen[bytes]:
        # The replacement may be slow on a busy machine.
        monkeypatch.undo()
        return start()

    monkeypatch.setattr(converter_module, "EXCHANGE_MAX_S", 1.0)
    monkeypatch.setattr(converter_module, "_start", start_anew)
    assert converter.encode(events) == expected
    assert children(os.getpid()) != [pid]


def test_what_is_spread_keeps_nobody_waiting_and_is_hurried_by_the_end(
    converter: Converter,
) -> None:
    events = chance(10, 2 * columns.BATCH_ROWS, 0)
    found: list[EventBatch] = []
    sealing = threading.Thread(
        target=lambda: found.extend(converter.encode(events, 3600.0)), daemon=True
    )
    sealing.start()
    reader = chance(11, 10, 0)
    assert converter.encode(reader) == columns.encode(reader)
    assert sealing.is_alive()
    converter.hurry()
    sealing.join(60)
    assert not sealing.is_alive()
    assert found == columns.encode(events)


def test_only_the_names_that_are_needed_travel(
    converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = chance(12, 10, 0)
    sent: list[tuple[dict[int, bytes], dict[int, bytes]]] = []
    send = vars(converter_module)["_send"]

    def note(pipe: IO[bytes], head: Any, blobs: Sequence[bytes]) -> None:
        sent.append((head[1][1], head[1][3]))
        send(pipe, head, blobs)

    monkeypatch.setattr(converter_module, "_send", note)
    many = {**dict.fromkeys(range(10000), b"other"), **events.names}
    assert events.hosts
    hosts = {**dict.fromkeys(range(1, 10000), b"other"), **events.hosts}
    found = converter.encode(events._replace(names=many, hosts=hosts))
    assert found == columns.encode(events)
    assert sent == [
        (
            {number: events.names[number] for number in events.tubes()},
            {number: hosts[number] for number in events.hosts_named() if number},
        )
    ]
    assert set(sent[0][0]) <= set(events.names)
    assert set(sent[0][1]) <= set(events.hosts)


def test_after_its_end_it_does_nothing(converter: Converter) -> None:
    events = chance(8, 10, 0)
    converter.encode(events)
    converter.close()
    with pytest.raises(OSError, match="the node stops"):
        converter.encode(events)
    assert children(os.getpid()) == []


def test_one_that_cannot_start_is_an_error_of_the_disk(
    converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that cannot be converted are lost, and the node goes on: see `EventLog`."""
    for program in ("/bin/false", "/nonexistent"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(OSError, match=r"died|No such file"):
            converter.encode(chance(9, 10, 0))
