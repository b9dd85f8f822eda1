"""Files of certificates on a volume that does not answer: NFS, or a secret in Kubernetes."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.core.users import OPEN
from beanpoled import supervision as watching
from beanpoled.examining import ERROR
from beanpoled.reloading import Outcome, Reading, Reloader
from beanpoled.supervision import Supervision
from beanpoled.trust import certificates, regular_files
from beanpoled.trust.apart import apart
from beanpoled.trust.certificates import STAY, Certificates, Files
from beanpoled.trust.rereading import Rereading
from beanpoled.trust.standing import Standing
from tests.integration.support.authority import Authority
from tests.unit.beanpoled.fakes import FakeView, until
from tests.unit.node.stage import config
from tests.unit.trust.test_rereading import READ, Rotated

# Longer than any step of these tests; a thread that has waited for it fails a test, and ends.
TIMEOUT_S = 30.0
SOON_S = 0.01


class Volume:
    """A file system of which one file does not answer while it hangs."""

    def __init__(self) -> None:
        self.path = ""
        self.calls = 0  # of it
        self.in_loop: list[str] = []  # paths that the thread of the test has looked at
        self._answers = threading.Event()
        self._answers.set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def asked(self, path: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.in_loop.append(path)
        elif path == self.path:
            self.calls += 1
            assert self._answers.wait(TIMEOUT_S)


@pytest.fixture
def rotated(tmp_path: Path) -> Rotated:
    return Rotated(tmp_path)


@pytest.fixture
def volume(rotated: Rotated, monkeypatch: pytest.MonkeyPatch) -> Volume:
    """The volume of the files of `rotated`; its list of revoked certificates may hang."""
    made, stat, read = Volume(), os.stat, regular_files.read_regular
    made.path = rotated.files.crl
    at = str(rotated.crl.parent)

    def slow_stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str) and path.startswith(at):
            made.asked(path)
        return stat(path, *arguments, **options)

    def slow_read(path: str, *arguments: Any) -> Any:
        made.asked(path)
        return read(path, *arguments)

    monkeypatch.setattr(os, "stat", slow_stat)
    monkeypatch.setattr(certificates, "read_regular", slow_read)
    return made


def renew(rotated: Rotated) -> None:
    """Replace the list of revoked certificates with one that is as good."""
    rotated.crl.write_bytes(rotated.crl.read_bytes() + b"\n")


def test_a_hung_file_is_told_once_and_read_when_it_answers(
    rotated: Rotated, volume: Volume
) -> None:
    before = rotated.certificates.server
    rereading = Rereading(rotated.trust, lambda line, *_: rotated.told.append(line), SOON_S)
    renew(rotated)

    async def run() -> None:
        with volume.hanging():
            looking = asyncio.create_task(rereading.look())
            await until(lambda: bool(rotated.told))
            for _ in range(3):
                await rereading.look()  # the loop goes on, and no more threads wait
            assert volume.calls == 1 and rotated.certificates.server is before
            (line,) = rotated.told
            words = f"the file system has not answered for 0.01 s at {volume.path!r}; {STAY}"
            assert line == f"tls_* files: {words}" and rereading.hanging == {"tls_": words}
        await looking

    asyncio.run(run())
    assert "tls_* files: the file system answered after 0 s" in rotated.told[1]
    assert rotated.told[2:] == [READ] and not rereading.hanging
    assert rotated.certificates.server is not before


def test_another_set_of_files_is_read_meanwhile(
    rotated: Rotated, volume: Volume, tmp_path: Path
) -> None:
    made = Authority(tmp_path / "others")
    names = (*made.make("n0"), made.ca, "", "n0")
    rotated.trust.of_peers = Certificates(Files("peer_tls_", *names))
    rereading = Rereading(rotated.trust, lambda *_: None)

    async def run() -> None:
        with volume.hanging():
            looking = asyncio.create_task(rereading.look())
            await until(lambda: volume.calls == 1)
            os.utime(names[0], ns=(0, 0))
            other = rotated.trust.of_peers
            await until(lambda: "peer_tls_" not in rereading._looking)
            await rereading.look()
            assert other is not None and other.generation >= 1
        await looking

    asyncio.run(run())


def test_what_a_slow_look_has_found_replaces_nothing_newer(
    rotated: Rotated, volume: Volume
) -> None:
    """An operator's request reads the files while a look is under way."""
    rereading = Rereading(rotated.trust, lambda *_: None)

    async def run() -> None:
        with volume.hanging():
            renew(rotated)
            looking = asyncio.create_task(rereading.look())
            await until(lambda: volume.calls == 1)
            assert rotated.trust.refresh(is_asked=True) == [READ]
            newest = rotated.certificates.server
        await looking
        assert rotated.certificates.server is newest and rotated.certificates.generation == 1

    asyncio.run(run())


class Watched:
    """The supervision of a node with the files of `rotated`, and its log."""

    def __init__(self, rotated: Rotated, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        made = config(**rotated.setting)
        host = SimpleNamespace(
            trust=rotated.trust,
            spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)),
            log=lambda line, *_: rotated.told.append(line),
            handle_signals=lambda *_: None,
        )
        users = SimpleNamespace(anonymous=OPEN)
        node = SimpleNamespace(
            condition=None,
            stopping=SimpleNamespace(stop=None),
            lifecycle=SimpleNamespace(drain=None),
            context=SimpleNamespace(machine=SimpleNamespace(users=users)),
        )
        lines: Any = SimpleNamespace(
            telling=nullcontext, write=lambda line, *_: rotated.told.append(line)
        )
        reading = Reading(made, lambda: made)
        self.reloader = Reloader(reading, made, lines, rotated.trust)
        its: Any = (node, host, self.reloader)
        quiet = SimpleNamespace(look=lambda *_: None, begin=lambda *_: None)
        for part in ("Collector", "Reporter"):  # they look at a whole node
            monkeypatch.setattr(watching, part, lambda *_: quiet)
        self.supervision = Supervision(*its)

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


def test_a_running_node_looks_at_no_file_in_its_loop(
    rotated: Rotated, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume that hung stopped the node, and with a shared one all nodes, for as long."""
    monkeypatch.setattr(watching, "LOOK_PERIOD_S", SOON_S)
    monkeypatch.setattr(watching, "CERTIFICATES_PERIOD_S", SOON_S)
    renew(rotated)

    async def run() -> None:
        watched = Watched(rotated, monkeypatch)
        watched.supervision.begin()
        with volume.hanging():
            await until(lambda: volume.calls == 1 or bool(volume.in_loop))
        await until(lambda: rotated.certificates.generation == 1)
        watched.end()

    asyncio.run(run())
    assert volume.in_loop == [] and rotated.told == [READ]


def test_a_request_reads_nothing_from_a_volume_that_is_known_to_hang(
    rotated: Rotated, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        watched = Watched(rotated, monkeypatch)
        supervision = watched.supervision
        supervision._rereading._hangs_after_s = SOON_S
        with volume.hanging():
            looking = asyncio.create_task(supervision._rereading.look())
            await until(lambda: bool(rotated.told))
            words = supervision._rereading.hanging["tls_"]
            assert supervision.reload() == Outcome(wrong=words)
            assert rotated.told[-1] == f"not reloaded: {words}"
            (found,) = [one for one in supervision.examine(FakeView()) if one.name == "tls_* files"]
            assert (found.level, found.words) == (ERROR, words)
            assert volume.in_loop == []
        await looking
        assert supervision.reload().changed == (READ,)
        watched.end()

    asyncio.run(run())


def test_a_list_that_hangs_does_not_hold_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop waits at its end for all threads of `asyncio.to_thread`."""
    answers, reading = threading.Event(), threading.Event()
    are_daemons: list[bool] = []

    def read(_path: str) -> frozenset[Any]:
        are_daemons.append(threading.current_thread().daemon)
        reading.set()
        assert not are_daemons[0] or answers.wait(TIMEOUT_S)
        return frozenset()

    monkeypatch.setattr("beanpoled.trust.standing.read", read)

    async def run() -> None:
        asyncio.get_running_loop().create_task(Standing("crl.pem").apply(1))
        await until(reading.is_set)

    asyncio.run(run())
    assert are_daemons == [True] and not answers.is_set()
    answers.set()


def test_work_apart_returns_and_raises_as_it_would_here() -> None:
    def fail() -> None:
        raise ValueError("wrong")

    async def run() -> None:
        assert await apart("test", lambda: threading.current_thread().name) == "test"
        with pytest.raises(ValueError, match="wrong"):
            await apart("test", fail)

    asyncio.run(run())
