"""Files of certificates that could not be read, or do not fit yet, are read again."""

import asyncio
import errno
import os
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.core.users import OPEN
from beanpoled.examining import ERROR
from beanpoled.reloading import Outcome
from beanpoled.supervision import Supervision
from beanpoled.trust import regular_files, revocations
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.trust import Trust
from tests.integration.support.authority import Authority
from tests.unit.beanpoled.fakes import FakeView
from tests.unit.node.stage import config

READ = "tls_certificate_file and what belongs to it was read again"


class Rotated:
    """A node's trust whose files are replaced.

    Attributes:
        told: the logged lines.
    """

    def __init__(self, folder: Path) -> None:
        self.told: list[str] = []
        self.authority = Authority(folder / "ca")
        self.own = [Path(path) for path in self.authority.make("n0")]
        self.crl = folder / "crl.pem"
        self.crl.write_bytes(Path(self.authority.revoke()).read_bytes())
        certificate, key = map(str, self.own)
        self.files = Files("tls_", certificate, key, self.authority.ca, str(self.crl))
        self.certificates = Certificates(self.files)
        self.trust = Trust("test", "n0", "", lambda line, *_: self.told.append(line))
        self.trust.of_clients = self.certificates

    @property
    def setting(self) -> dict[str, str]:
        """The settings that name the files."""
        names = ("certificate_file", "key_file", "client_ca_file", "crl_file")
        paths = (*map(str, self.own), self.files.ca, self.files.crl)
        return {f"tls_{name}": path for name, path in zip(names, paths, strict=True)}


@pytest.fixture
def rotated(tmp_path: Path) -> Rotated:
    return Rotated(tmp_path)


def refusing(patch: pytest.MonkeyPatch, path: str, code: int) -> None:
    """Let every opening of a file by this program fail."""

    def refuse(name: str, mode: str = "r", **options: Any) -> Any:
        if name == path:
            raise OSError(code, os.strerror(code), name)
        return open(name, mode, **options)  # the caller closes it

    patch.setattr(regular_files, "open", refuse, raising=False)
    patch.setattr("beanpole.client.expiry.open", refuse, raising=False)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("part", ["certificate", "key", "ca", "crl"])
def test_a_file_whose_read_failed_is_read_again(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, part: str, code: int
) -> None:
    """It was never read again: a client that the new list revokes was accepted for ever."""
    path = getattr(rotated.files, part)
    os.utime(path, ns=(0, 0))
    with monkeypatch.context() as patch:
        refusing(patch, path, code)
        for _ in range(3):
            assert rotated.trust.refresh() == []
    assert len(rotated.told) == 1, "once, and not in each period"
    assert path in rotated.told[0] and os.strerror(code) in rotated.told[0]
    assert rotated.trust.refresh() == [READ]
    assert rotated.trust.refused_files() == {} and rotated.certificates.generation == 1
    assert rotated.trust.refresh() == [], "once"


def test_the_end_of_a_file_that_was_unreadable_for_a_moment_is_known_later(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL has read the list, and this program then has no descriptor to read its end."""
    first = rotated.certificates.ends_s
    with monkeypatch.context() as patch:
        os.utime(rotated.crl, ns=(0, 0))
        patch.setattr(revocations, "read_regular", _no_descriptor)
        assert rotated.trust.refresh() == []
        assert rotated.certificates.ends_s == first
    assert rotated.trust.refresh() == [READ]
    assert rotated.certificates.ends_s == first != {}


def _no_descriptor(*_: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_half_of_a_new_pair_is_refused_until_the_other_half_is_there(rotated: Rotated) -> None:
    fresh = [Path(path).read_bytes() for path in rotated.authority.make("n1")]
    before = rotated.certificates.server
    for path, content in zip(rotated.own, fresh, strict=True):
        assert rotated.certificates.server is before
        path.write_bytes(content)
        rotated.trust.refresh()
    assert len(rotated.told) == 2 and "key values mismatch" in rotated.told[0]
    assert rotated.told[1] == READ and rotated.certificates.server is not before


def test_an_operator_who_asks_has_the_files_read_and_hears_of_a_refusal(rotated: Rotated) -> None:
    assert rotated.trust.refresh(is_asked=True) == [READ]
    rotated.crl.write_text("nothing")
    for _ in range(2):
        rotated.trust.refresh()
    rotated.trust.refresh(is_asked=True)
    refusals = [line for line in rotated.told if "cannot be used" in line]
    assert len(refusals) == 2, "at its change, and when asked"


def test_a_sighup_reads_the_files_and_doctor_names_a_refusal(rotated: Rotated) -> None:
    def spawn(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(work)

    host = SimpleNamespace(trust=rotated.trust, spawn=spawn, log=lambda *_: None)
    users = SimpleNamespace(anonymous=OPEN)
    node = SimpleNamespace(
        condition=None,
        stopping=SimpleNamespace(),
        context=SimpleNamespace(machine=SimpleNamespace(users=users)),
    )
    reloader = SimpleNamespace(
        reload=Outcome, telling=nullcontext, config=config(**rotated.setting)
    )
    its: Any = (node, host, reloader)
    supervision = Supervision(*its)
    assert supervision.reload() == Outcome(changed=(READ,))
    good = rotated.crl.read_bytes()
    rotated.crl.write_text("nothing")
    outcome = supervision.reload()
    assert not outcome.changed and "tls_crl_file" in outcome.refused
    rotated.crl.write_bytes(good)  # the node has not seen it yet
    levels = {one.name: (one.level, one.words) for one in supervision.examine(FakeView())}
    assert levels["tls_* files"] == (ERROR, outcome.refused)
    assert supervision.reload().changed == (READ,)
    assert "tls_* files" not in {one.name for one in supervision.examine(FakeView())}
