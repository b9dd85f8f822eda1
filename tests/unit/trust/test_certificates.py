"""Settings of TLS, mismatching files, and replaced files."""

import math
import os
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beanpole.client.expiry import all_expire_s, expires_s
from beanpole.errors import ConfigurationError
from beanpoled.cli import main
from beanpoled.config import node, tls
from beanpoled.trust import revocations
from beanpoled.trust.certificates import SESSIONS_S, Certificates, Files, names_in, shown_name
from beanpoled.trust.handshakes import (
    NO_CRL,
    OF_OTHER_USE,
    reason_of,
)
from tests.integration.support.authority import Authority
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.node.stage import config

MEMBERS = ("a", "b.example.org", "beanpole-0")
PAIR = {"tls_certificate_file": "c", "tls_key_file": "k"}
PEERS = {f"peer_tls_{part}_file": part for part in ("certificate", "key", "ca")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("certificates")
    assert main(["certs", "dev", "--to", str(found), "--nodes", "a,b"]) == 0
    return found


def files(place: Path, name: str = "a", **others: str) -> Files:
    given = {"certificate": str(place / f"{name}.pem"), "key": str(place / f"{name}.key")}
    given |= {"ca": str(place / "ca.pem"), "crl": ""}
    return Files("peer_tls_", **(given | others))


@pytest.mark.parametrize(
    ("settings", "addresses", "words"),
    [
        ({"tls_key_file": "k"}, [], "tls_certificate_file is missing: give all of"),
        (PEERS | {"peer_tls_ca_file": ""}, [], "peer_tls_ca_file is missing: give all of"),
        ({"tls_client_ca_file": "x"}, [], "has no effect without tls_certificate_file"),
        (PAIR | {"tls_crl_file": "x"}, ["tls:h:1"], "has no effect without tls_client_ca_file"),
        ({"peer_tls_crl_file": "x"}, [], "has no effect without peer_tls_ca_file"),
        ({}, ["tls:h:1"], "'tls:h:1' is not allowed: a tls: address needs tls_certificate_file"),
        (PAIR, [], "has no effect without an address of clients that begins with tls:"),
    ],
)
def test_settings_that_do_not_go_together(
    settings: Mapping[str, str], addresses: list[str], words: str
) -> None:
    with pytest.raises(ConfigurationError, match="^" + ".*" + words.replace("(", r"\(")):
        tls.check(config(**settings), addresses, MEMBERS)
    tls.check(config(**PAIR, **PEERS), ["tls:h:1"], MEMBERS)


@pytest.mark.parametrize("name", ["a..b", "a..", "10.0.0.1"])
def test_a_node_whose_id_is_no_dns_name_has_no_tls(name: str, tmp_path: Path) -> None:
    """A dial of `a..b` raised UnicodeError, which ended the node."""
    path = tmp_path / "node.toml"
    path.write_text(
        'cluster = "test"\nnode_id = "a"\ndata_dir = "x"\nlisten = ["127.0.0.1:1"]\n'
        'peer_listen = "127.0.0.1:2"\ngrpc_listen = "127.0.0.1:3"\nhttp_listen = "127.0.0.1:4"\n'
        'members.a = {peer = "127.0.0.1:2", grpc = "127.0.0.1:3"}\n'
        f'members."{name}" = {{peer = "127.0.0.1:5", grpc = "127.0.0.1:6"}}\n'
    )
    node.load(str(path), {}, {})
    with pytest.raises(ConfigurationError, match=f"^members.{name} is not allowed with peer_tls"):
        node.load(str(path), {}, PEERS)


def test_every_id_that_a_configuration_allows_can_be_verified() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("a", "A_b", "a-.b", "a.", "n" * 63, "10.0.0", "0"):
        tls.check(config(**PEERS), [], [name])
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)


@pytest.mark.parametrize(
    ("part", "text", "words"),
    [
        ("certificate", None, "peer_tls_certificate_file = .* cannot be read: No such file"),
        ("certificate", "nothing", "do not make a certificate with its key"),
        ("key", "nothing", "do not make a certificate with its key"),
        ("ca", "nothing", "peer_tls_ca_file = .* cannot be used"),
        ("crl", None, "peer_tls_crl_file = .* cannot be read"),
    ],
)
def test_files_that_cannot_be_used(
    place: Path, tmp_path: Path, part: str, text: str | None, words: str
) -> None:
    wrong = tmp_path / "wrong"
    if text is not None:
        wrong.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        Certificates(files(place, **{part: str(wrong)}))


@pytest.mark.parametrize("part", ["certificate", "key", "ca", "crl"])
def test_a_pipe_is_refused_at_once(place: Path, tmp_path: Path, part: str) -> None:
    """The open waited for a writer, and the node stood still after a SIGHUP."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told = f"peer_tls_{part}_file = '{pipe}' cannot be read: it must be a regular file"
    with pytest.raises(ConfigurationError, match=told):
        Certificates(files(place, **{part: str(pipe)}))
    with pytest.raises(OSError, match="it must be a regular file"):
        revocations.read(str(pipe))


def test_the_key_of_another_certificate(place: Path) -> None:
    with pytest.raises(ConfigurationError, match="key values mismatch"):
        Certificates(files(place, key=str(place / "b.key")))


def test_files_that_are_replaced(place: Path, tmp_path: Path) -> None:
    own = {kind: tmp_path / f"own.{kind}" for kind in ("pem", "key")}
    for kind, path in own.items():
        path.write_bytes((place / f"a.{kind}").read_bytes())
    found = Certificates(files(place, certificate=str(own["pem"]), key=str(own["key"])))
    assert found.server.verify_mode == ssl.CERT_REQUIRED
    first = found.server
    assert found.refresh() is None
    own["pem"].write_text("nothing")
    words = found.refresh()
    assert words is not None and words.startswith("the certificates that were read before stay")
    assert (found.server, found.generation) == (first, 0)
    for kind, path in own.items():
        path.write_bytes((place / f"b.{kind}").read_bytes())
    assert found.refresh() == "peer_tls_certificate_file and what belongs to it was read again"
    assert found.generation == 1 and found.server is not first
    own["pem"].unlink()
    assert "No such file" in str(found.refresh())
    assert found.refresh() is None  # already reported


def test_the_ends_of_the_files_in_use(place: Path, tmp_path: Path) -> None:
    own, several = tmp_path / "own.pem", tmp_path / "several.pem"
    own.write_bytes((place / "a.pem").read_bytes())
    several.write_bytes((place / "ca.pem").read_bytes() + (place / "b.pem").read_bytes())
    paths = {"certificate": str(own), "ca": str(several)}
    found = Certificates(files(place, **paths))
    ca_s, b_s = all_expire_s(str(several))
    trust = trust_of()
    assert trust.files_end_s(0.0) == {}
    trust.of_peers = found
    setting = "peer_tls_certificate_file"
    first_s, last_s = sorted((ca_s, b_s))
    own_s = expires_s(str(own))
    assert trust.files_end_s(0.0) == {setting: own_s, "peer_tls_ca_file": first_s}
    assert trust.files_end_s(first_s)["peer_tls_ca_file"] == last_s, "one of several has ended"
    assert trust.files_end_s(last_s)["peer_tls_ca_file"] == last_s
    found.ends_s = {setting: [math.inf], "peer_tls_crl_file": []}
    assert trust.files_end_s(0.0) == {}, "no end, or an unknown one"
    run = ["certs", "dev", "--to", str(tmp_path / "longer"), "--nodes", "a", "--days", "4000"]
    assert main(run) == 0
    for kind in ("pem", "key"):
        (tmp_path / f"own.{kind}").write_bytes((tmp_path / "longer" / f"a.{kind}").read_bytes())
    found = Certificates(files(place, **paths, key=str(tmp_path / "own.key")))
    assert found.ends_s[setting] == [expires_s(str(own))] != [own_s]
    for kind in ("pem", "key"):
        (tmp_path / f"own.{kind}").write_bytes((place / f"a.{kind}").read_bytes())
    assert "was read again" in str(found.refresh())
    assert found.ends_s[setting] == [own_s]


def test_a_file_written_twice_within_a_tick_of_the_clock(place: Path, tmp_path: Path) -> None:
    """The kernel's times have steps of some milliseconds: the size may be all that differs."""
    own = tmp_path / "own.pem"
    own.write_bytes((place / "a.pem").read_bytes())
    time_ns = own.stat().st_mtime_ns
    found = Certificates(files(place, certificate=str(own)))
    own.write_text("nothing")
    os.utime(own, ns=(time_ns, time_ns))
    assert "stay in use" in str(found.refresh())


def test_contexts_are_made_anew_so_that_they_know_no_old_sessions(place: Path) -> None:
    now_s = 0.0
    found = Certificates(files(place), lambda: now_s)
    of_any = Certificates(files(place, ca=""), lambda: now_s)
    first, its = found.server, of_any.server
    for passed_s, is_same in ((SESSIONS_S - 1, True), (2.0, False)):
        now_s += passed_s
        assert found.refresh() is None and of_any.refresh() is None
        assert (found.server is first) == is_same
    assert found.generation == 0 and of_any.server is its  # it verifies no certificates
    second = found.server
    assert found.refresh() is None and found.server is second


def test_files_that_change_while_contexts_are_made_anew_are_judged_first(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    found = Certificates(files(place), lambda: now_s)
    first, read = found.server, Certificates._read

    def reading(certificates: Certificates) -> Any:
        made = read(certificates)
        (place / "ca.pem").touch()
        return made

    now_s = SESSIONS_S + 1
    monkeypatch.setattr(Certificates, "_read", reading)
    assert found.refresh() is None and found.server is first
    assert "was read again" in str(found.refresh()) and found.server is not first


def test_no_version_of_openssl_lets_clients_renegotiate(place: Path) -> None:
    assert Certificates(files(place)).server.options & ssl.OP_NO_RENEGOTIATION


def test_files_of_another_kind_are_refused(place: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    revoked = authority.revoke()
    for given, words in (
        ({"ca": str(revoked)}, "peer_tls_ca_file = .* has no certificate"),
        ({"crl": str(place / "ca.pem")}, "peer_tls_crl_file = .* has no list of revoked"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            Certificates(files(place, **given))


def test_what_other_nodes_would_refuse_is_not_put_in_use(place: Path, tmp_path: Path) -> None:
    own = {kind: tmp_path / f"own.{kind}" for kind in ("pem", "key")}
    for kind, path in own.items():
        path.write_bytes((place / f"a.{kind}").read_bytes())
    paths = {"certificate": str(own["pem"]), "key": str(own["key"])}
    found = Certificates(files(place, **paths)._replace(name="a"))
    assert not found.fault() and not found.refusal
    first = found.server
    for kind, path in own.items():
        path.write_bytes((place / f"b.{kind}").read_bytes())
    assert "other nodes would refuse it: Hostname mismatch" in str(found.refresh())
    assert found.server is first and "Hostname mismatch" in found.refusal
    for kind, path in own.items():
        path.write_bytes((place / f"a.{kind}").read_bytes())
    assert "was read again" in str(found.refresh())
    assert found.server is not first and not found.refusal


def test_names_in_a_certificate() -> None:
    shown = {"subjectAltName": (("DNS", "a"), ("IP Address", "10.0.0.1"), ("DNS", "a.org"))}
    assert names_in(shown) == {"a", "a.org"}
    assert names_in({}) == frozenset()


def test_the_name_by_which_a_certificate_is_shown() -> None:
    names = (("IP Address", "10.0.0.1"), ("DNS", "zoe"), ("DNS", "adam"))
    subject = ((("organizationName", "o"),), (("commonName", "laptop"),))
    assert shown_name({"subjectAltName": names, "subject": subject}) == "zoe"
    assert shown_name({"subjectAltName": names[:1], "subject": subject}) == "laptop"
    assert shown_name({"subject": subject[:1]}) == shown_name({}) == ""


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(place: Path, tmp_path: Path) -> None:
    encrypted = tmp_path / "own.key"
    pair = ("-in", str(place / "a.key"), "-out", str(encrypted))
    openssl("ec", *pair, "-aes256", "-passout", "pass:word")
    with pytest.raises(ConfigurationError, match=r"^peer_tls_key_file = .* is encrypted: "):
        Certificates(files(place, key=str(encrypted)))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Return the reason why a server refuses a client, both in memory."""
    buffers = [ssl.MemoryBIO() for _ in range(4)]
    sides = [
        server.wrap_bio(buffers[0], buffers[1], server_side=True),
        client.wrap_bio(buffers[1], buffers[0], server_hostname="a"),
    ]
    for _ in range(4):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return reason_of(error)
    return ""


def test_why_a_good_certificate_is_refused(place: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    for name in ("a", "b"):
        authority.make(name)
    crl = authority.revoke()
    good = files(authority.place, crl=crl)
    client = Certificates(files(authority.place, "b")).client
    assert handshake(Certificates(good).server, client) == ""
    # A revocation list of another CA.
    other = Authority(tmp_path / "other").revoke()
    assert handshake(Certificates(good._replace(crl=other)).server, client) == NO_CRL
    # A certificate for servers only.
    ca = ("-CA", authority.ca, "-CAkey", str(authority.place / "ca.key"), "-CAcreateserial")
    request, extensions = str(tmp_path / "csr"), tmp_path / "extensions"
    extensions.write_text("extendedKeyUsage=serverAuth\nsubjectAltName=DNS:b\n")
    key = str(authority.place / "b.key")
    openssl("req", "-new", "-key", key, "-subj", "/CN=b", "-out", request)
    made = ("-out", str(authority.place / "b.pem"), "-extfile", str(extensions))
    openssl("x509", "-req", "-in", request, *ca, *made)
    client = Certificates(files(authority.place, "b")).client
    assert handshake(Certificates(good).server, client) == OF_OTHER_USE


@pytest.mark.parametrize(
    "line",
    [
        *(["--nodes", names] for names in ("a,../b", "client", "ca", "a,CA")),
        *(["--days", "0"], ["--hosts", "a b"]),
    ],
)
def test_wrong_options_of_certs(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", "dev", "--to", str(tmp_path), *line]) == 2
    assert line[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
