"""Earlier releases and this program apply the same random logs, at the release's version, alike.

In an upgrade both run in one cluster until its machine is raised. `test_releases` has the logs that
each release recorded; these have what nobody thought of then, such as operations of later versions.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core.jobs.queue import Queue
from tests.integration.support.releases import KNOWS, release
from tests.unit.core.cluster import Entry
from tests.unit.core.logs import LATEST_STEPS, STEPS, log_of
from tests.unit.releases import replaying

pytestmark = pytest.mark.slow

STEPS_OF_ALL_VERSIONS = st.lists(st.one_of(STEPS, LATEST_STEPS), min_size=1, max_size=12)


class Older:
    """A program of a release, which applies logs."""

    def __init__(self, version: str, directory: Path) -> None:
        self.knows = KNOWS[version]
        *words, _, _ = release(version, directory).words  # without `-m beanpoled`
        self._process = subprocess.Popen(
            [*words, replaying.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def facts(self, log: list[bytes]) -> Any:
        """Return `replaying.facts` of the release."""
        assert self._process.stdin is not None and self._process.stdout is not None
        replaying.send(self._process.stdin, log)
        return replaying.receive(self._process.stdout)

    def end(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module", params=KNOWS)
def older(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    program = Older(request.param, tmp_path_factory.mktemp("release"))
    yield program
    program.end()


def written(entries: list[Entry], version: int) -> list[bytes]:
    """Return the bytes of entries, of which the first raises the machine and none goes beyond."""
    log = []
    for index, flags, time_us, wall_us, sections in entries:
        if index == 1 and version > c.BASE_VERSION:
            sections = [(c.LEADER, 0, 0, ((c.RAISE, version),)), *sections]
        packed = []
        for origin, incarnation, number, commands in sections:
            allowed = [one for one in commands if one[0] != c.RAISE or one[1] <= version]
            packed.append((origin, incarnation, number, c.pack_commands(allowed)))
        log.append(c.encode_entry(flags, time_us, wall_us, packed))
    return log


def compare(older: Older, log: list[bytes]) -> None:
    """Assert that each entry of a log does the same in both programs."""
    before, now = older.facts(log), replaying.facts(log)
    for index, (its, ours) in enumerate(zip(before, now, strict=False), 1):
        assert its == ours, f"entry {index}"
        assert len(its) > 1, f"entry {index} is applied by neither program: {its}"
    assert len(before) == len(now) == len(log)


@settings(max_examples=250, deadline=None)
@given(steps=STEPS_OF_ALL_VERSIONS)
def test_a_release_and_this_program_apply_random_logs_alike(older: Older, steps: Any) -> None:
    compare(older, written(log_of(steps), older.knows))


def test_a_change_of_apply_is_found(older: Older, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(log_of([(0, 0, [(0, "next", [(c.RESERVE_JOB, 1, 1), (c.TOUCH, 1, 1)])])]), 2)
    compare(older, log)
    touch = Queue.touch
    monkeypatch.setattr(Queue, "touch", lambda *of: touch(*of) or touch(*of))
    with pytest.raises(AssertionError, match="entry 2"):
        compare(older, log)


def test_an_exception_is_found_and_the_next_log_is_compared(older: Older) -> None:
    good = written(log_of([(0, 0, [(0, "next", [(c.RESERVE_JOB, 1, 1)])])]), 2)
    bad = [*good[:1], b"", *good[1:]]
    assert len(older.facts(bad)) == len(replaying.facts(bad)) == 2
    with pytest.raises(AssertionError, match="entry 2 is applied by neither program"):
        compare(older, bad)
    compare(older, good)


def test_an_exception_in_one_program_is_found(
    older: Older, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*of: Any) -> None:
        raise KeyError("not in the release")

    log = written(log_of([(0, 0, [(0, "next", [(c.RESERVE_JOB, 1, 1), (c.TOUCH, 1, 1)])])]), 2)
    monkeypatch.setattr(Queue, "touch", fail)
    assert replaying.facts(log)[-1] == ["<class 'KeyError'>"]
    with pytest.raises(AssertionError, match="entry 2"):
        compare(older, log)
