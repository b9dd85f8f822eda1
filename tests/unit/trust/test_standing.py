"""A certificate that is revoked ends the connections that it has made."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from beanpoled.config.node import SETTINGS
from beanpoled.reloading import RELOADED
from beanpoled.trust import revocations, standing
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.revocations import Identity, identity, read
from beanpoled.trust.standing import Connection, Standing
from beanpoled.trust.trust import Trust
from tests.integration.support.authority import Authority
from tests.unit.trust.pairs import Pair

NAMES = ("a", "b", "c")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    found = Authority(tmp_path / "ca")
    for name in NAMES:
        found.make(name)
    return found


def der(authority: Authority, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((authority.place / f"{name}.pem").read_text())


class Ended:
    """A connection, and whether it was ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def end(self) -> None:
        """See `Connection`."""
        self.has_ended = True


def test_a_list_names_the_certificates_that_it_revokes(
    authority: Authority, tmp_path: Path
) -> None:
    assert read(authority.revoke()) == frozenset(), "a list without an entry"
    crl = Path(authority.revoke("a", "b"))
    revoked = read(str(crl))
    assert revoked == {identity(der(authority, name)) for name in ("a", "b")}
    other = Authority(tmp_path / "other")
    other.make("a")
    both = tmp_path / "both.pem"
    both.write_text(crl.read_text() + "between\n" + Path(other.revoke("a")).read_text())
    assert read(str(both)) == revoked | {identity(der(other, "a"))}


def test_connections_of_revoked_certificates_end(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "SLICE", 1)
    crl = tmp_path / "crl.pem"
    kept, revoked, gone, without, strange, late = (Ended() for _ in range(6))
    it = Standing(str(crl))
    for one, name in ((kept, "c"), (revoked, "a"), (gone, "a")):
        it.add(one, der(authority, name))
    it.add(without, None)
    it.add(strange, b"no certificate")
    it.forget(gone)
    assert "No such file" in str(asyncio.run(it.apply(1)))
    crl.write_bytes(Path(authority.revoke("a", "b")).read_bytes())
    assert str(asyncio.run(it.apply(1))).startswith("ended 1 connection ")
    assert revoked.has_ended
    assert not any(one.has_ended for one in (kept, gone, without, strange))
    it.add(late, der(authority, "a"))
    assert late.has_ended, "its handshake began with the list before"


def test_a_stream_stands_from_its_handshake_to_its_end(authority: Authority) -> None:
    class Noted(Standing):
        count = 0

        def add(self, connection: Connection, certificate: bytes | None) -> None:
            self.count += 1
            super().add(connection, certificate)

        def forget(self, connection: Connection) -> None:
            self.count -= 1
            super().forget(connection)

    loop, it = asyncio.new_event_loop(), Noted(authority.revoke())
    try:
        failed = Pair(authority.place, loop, standing=it)
        failed.stream.connection_lost(None)
        assert it.count == 0
        pair = Pair(authority.place, loop, standing=it)
        pair.shake()
        assert it.count == 1 and not pair.below.closing
        pair.stream.end()
        assert pair.below.closing
        pair.stream.connection_lost(None)
        pair.stream.connection_lost(None)
        assert it.count == 0
    finally:
        loop.close()


def test_a_certificate_is_kept_only_where_there_is_a_list(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    get = ssl.SSLObject.getpeercert

    def counted(tls: ssl.SSLObject, binary_form: bool = False) -> Any:
        asked.append(binary_form)
        return get(tls, binary_form)

    monkeypatch.setattr(ssl.SSLObject, "getpeercert", counted)
    loop = asyncio.new_event_loop()
    try:
        for it, count in ((None, 0), (Standing(authority.revoke()), 1)):
            asked.clear()
            Pair(authority.place, loop, standing=it, shown="b").shake()
            assert asked.count(True) == count
    finally:
        loop.close()
    fixed = {setting.name for setting in SETTINGS if setting.name.endswith("tls_crl_file")}
    assert len(fixed) == 2 and not fixed & RELOADED, "connections before the list would stay"


def test_a_stream_that_has_just_failed_may_be_ended(authority: Authority, tmp_path: Path) -> None:
    """OpenSSL tells no certificate of it, which ended a node."""
    loop = asyncio.new_event_loop()
    crl = tmp_path / "crl.pem"
    it = Standing(str(crl))
    try:
        pair = Pair(authority.place, loop, standing=it, shown="b")
        pair.shake()
        pair.stream.data_received(b"no record of TLS")
        assert pair.below.closing, "its loss is not told yet"
        crl.write_bytes(Path(authority.revoke("b")).read_bytes())
        assert str(loop.run_until_complete(it.apply(1))).startswith("ended 1 connection ")
    finally:
        loop.close()


class Listed:
    """A node's trust with a list that revokes nothing, and one connection of a client.

    Attributes:
        told: the logged lines.
    """

    def __init__(self, folder: Path) -> None:
        self.told: list[str] = []
        self.crl = folder / "crl.pem"
        self.other = Authority(folder / "other")
        self.pair = self.other.make("node")
        self.other.make("client")
        self.crl.write_bytes(Path(self.other.revoke()).read_bytes())
        self.trust = Trust("test", "n0", "", lambda line, *_: self.told.append(line))
        certificates = Certificates(Files("tls_", *self.pair, self.other.ca, str(self.crl)))
        assert certificates.standing is not None
        self.trust.of_clients = certificates
        self.connection = Ended()
        certificates.standing.add(self.connection, der(self.other, "client"))

    def revoke(self) -> None:
        """Put the client onto the list."""
        self.crl.write_bytes(Path(self.other.revoke("client")).read_bytes())

    def take(self) -> None:
        """Let OpenSSL read the files, and the node end connections."""
        self.trust.refresh()
        asyncio.run(self.trust.end_revoked())


def test_only_a_new_list_is_applied(tmp_path: Path) -> None:
    listed = Listed(tmp_path)
    trust, told, connection = listed.trust, listed.told, listed.connection
    assert Certificates(Files("tls_", *listed.pair, listed.other.ca, "")).standing is None
    listed.revoke()
    asyncio.run(trust.end_revoked())
    assert not connection.has_ended, "OpenSSL has not read the file yet"
    trust.refresh()
    asyncio.run(trust.end_revoked())
    assert connection.has_ended
    asyncio.run(trust.end_revoked())
    assert told[1:] == ["ended 1 connection with a certificate that is revoked now"]


def test_a_list_that_only_openssl_reads_is_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_raw: bytes) -> list[bytes]:
        raise IndexError("index out of range")

    listed = Listed(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(revocations, "_revoked", refuse)
        listed.revoke()
        for _ in range(3):
            listed.take()
        listed.crl.write_text(f"another issue\n{listed.crl.read_text()}")
        for _ in range(3):
            listed.take()
    assert not listed.connection.has_ended
    told = [line for line in listed.told if "cannot be read" in line]
    assert len(told) == 2, "once for each content"
    assert str(listed.crl) in told[0] and "IndexError: index out of range" in told[0]
    listed.take()
    assert listed.connection.has_ended, "it is tried again"


def test_one_list_is_read_once_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def counted(path: str) -> frozenset[Identity]:
        reads.append(path)
        return read(path)

    async def twice() -> None:
        await asyncio.gather(listed.trust.end_revoked(), listed.trust.end_revoked())

    listed = Listed(tmp_path)
    listed.revoke()
    listed.trust.refresh()
    monkeypatch.setattr(standing, "read", counted)
    asyncio.run(twice())
    assert len(reads) == 1 and listed.connection.has_ended


def test_a_file_without_a_list_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    empty = tmp_path / "crl.pem"
    empty.write_text("")
    with pytest.raises(ValueError, match="no list"):
        read(str(empty))
