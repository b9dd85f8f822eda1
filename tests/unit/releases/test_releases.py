"""Recordings of earlier releases are read, and applied as then; see `recording`."""

import re
from pathlib import Path

import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.image import image
from beanpole.core.jobs.queue import Queue
from beanpole.core.machine import Machine
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from tests.unit.releases.record import RETIRED, record
from tests.unit.releases.recording import FIXTURES, Recording, check, pack, replay, unpack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
# The first release that can be upgraded from.
FIRST = (0, 2, 0)


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Return the recording of this program, written to the file format and read back."""
    return unpack(pack(record()))


def test_what_this_program_writes_it_reads(recording: Recording) -> None:
    check(recording)
    assert recording.facts["log"]["jobs"] > 50
    assert recording.facts["operations"]["jobs"] > 200


def test_what_earlier_releases_wrote_is_read() -> None:
    for path in sorted(FIXTURES.glob("*.tar.xz")):
        check(unpack(path.read_bytes()))


def test_every_release_is_recorded() -> None:
    """Run `python -m tests.unit.releases.record` before the commit of the release."""
    heads = re.findall(r"^## (\d+)\.(\d+)\.(\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = {tuple(map(int, numbers)) for numbers in heads}
    wanted = {f"{a}.{b}.{patch}.tar.xz" for a, b, patch in released if (a, b, patch) >= FIRST}
    assert wanted == {path.name for path in FIXTURES.glob("*.tar.xz")}


def test_every_operation_stands_in_the_log_and_has_an_effect(recording: Recording) -> None:
    """An effect means that at least one result is not an error."""
    machine, seen, effective = Machine(), set[int](), set[int]()
    for index, entry in recording.operations:
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        own = index % 2
        applied = machine.apply(index, flags, time_us, wall_us, sections, own)
        seen |= {command[0] for section in sections for command in section[3]}
        results = [result for batch in applied.results for result in batch[2]]
        sent = [command for section in sections if section[0] == own for command in section[3]]
        if len(results) == len(sent):  # and the batch was not ignored
            for command, result in zip(sent, results, strict=True):
                if type(result) is not int or result > 0:
                    effective.add(command[0])
    assert seen == set(OPERATIONS) | {RETIRED}
    clients = {code for code, entry in OPERATIONS.items() if isinstance(entry, ClientOperation)}
    assert effective == clients


def test_every_call_of_qless_stands_in_the_log_and_has_an_effect(recording: Recording) -> None:
    """The same holds for the calls, which share two operations."""
    machine, effective = Machine(), set[int]()
    for index, entry in recording.operations:
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        own = index % 2
        applied = machine.apply(index, flags, time_us, wall_us, sections, own)
        results = [result for batch in applied.results for result in batch[2]]
        sent = [command for section in sections if section[0] == own for command in section[3]]
        if len(results) == len(sent):
            for command, result in zip(sent, results, strict=True):
                is_call = command[0] in (c.QLESS, c.QLESS_READ) and type(result) is tuple
                if is_call and result[0] == q.OK:
                    effective.add(command[2])
    assert effective == set(q.CALL_NAMES)
    assert len(machine.qless.jobs) > 3


def test_a_change_of_apply_is_found(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    touch = Queue.touch
    monkeypatch.setattr(Queue, "touch", lambda *of: touch(*of) or touch(*of))
    with pytest.raises(AssertionError, match="another state after entry"):
        check(recording)


@pytest.mark.constants
def test_a_change_of_the_image_is_found(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "CHUNK_JOBS", 2)
    with pytest.raises(AssertionError, match="another image"):
        check(recording)
    monkeypatch.undo()
    assert replay(recording.log).images == recording.facts["log"]["images"]
