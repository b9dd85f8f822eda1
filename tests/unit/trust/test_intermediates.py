"""Clients and nodes that show an intermediate CA, and the lists of those that issued certificates.

The chains are openssl's, and its `verify` judges some of them, too.
"""

import os
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beanpole.errors import ConfigurationError
from beanpoled.trust import authorities
from beanpoled.trust.certificates import SESSIONS_S, Certificates, Files
from beanpoled.trust.handshakes import NO_CRL, REVOKED
from tests.integration.support.authority import Authority
from tests.unit.trust.test_certificates import handshake

CHAIN = ssl.VERIFY_CRL_CHECK_CHAIN


class Chains:
    """A root CA, which a node trusts, and two below it that issue certificates of clients.

    Attributes:
        root: its certificate is in the file of CAs; it issues certificates, too.
        issuing: signed by the root.
        last: signed by `issuing`.
    """

    def __init__(self, folder: Path) -> None:
        self._crl = folder / "crl.pem"
        self.ca = folder / "ca.pem"
        self.root = Authority(folder / "root", "Root CA")
        self.issuing = Authority(folder / "issuing", "Issuing CA", self.root)
        self.last = Authority(folder / "last", "Last CA", self.issuing)
        self.ca.write_text(Path(self.root.ca).read_text())
        self._own = self.root.make("n0")

    def use(self, *lists: str, clock: Callable[[], float] = time.monotonic) -> Certificates:
        """Start a node with these lists in its file; by default with those that it has."""
        if lists:
            self._crl.write_text("".join(Path(path).read_text() for path in lists))
        return Certificates(Files("tls_", *self._own, str(self.ca), str(self._crl)), clock)

    def client(self, *shown: Authority) -> ssl.SSLContext:
        """Make a certificate of the first of these CAs; return the context of its client.

        Args:
            shown: the CA, and those from there to the root, which the client shows.
        """
        certificate, key = shown[0].make("client")
        with open(certificate, "a", encoding="ascii") as file:
            file.writelines(Path(one.ca).read_text() for one in shown)
        context = self.root.client((certificate, key))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def refusal(self, used: Certificates, *shown: Authority) -> str:
        """Return why a node refuses a client with a new certificate, or nothing; see `client`."""
        return handshake(used.server, self.client(*shown))

    def openssl(self, authority: Authority) -> str:
        """Return what openssl says of the last client of a CA, with each list of the chain."""
        client, shown = str(authority.place / "client.pem"), authority.ca
        line = ["openssl", "verify", "-crl_check_all", "-CAfile", str(self.ca)]
        line += ["-CRLfile", str(self._crl), "-untrusted", shown, client]
        done = subprocess.run(line, check=False, capture_output=True, text=True)
        return done.stdout + done.stderr


@pytest.fixture
def chains(tmp_path: Path) -> Chains:
    return Chains(tmp_path)


def test_a_client_of_a_revoked_intermediate_ca_is_refused(chains: Chains) -> None:
    """It was let in: only its own certificate was looked for in the lists."""
    lists = (chains.root.revoke("Issuing CA"), chains.issuing.revoke())
    used = chains.use(*lists)
    assert chains.refusal(used, chains.issuing) == REVOKED
    assert "certificate revoked" in chains.openssl(chains.issuing)
    assert chains.refusal(used, chains.root) == "", "one of the root itself"


def test_contexts_that_are_made_anew_check_chains_too(chains: Chains) -> None:
    lists = (chains.root.revoke("Issuing CA"), chains.issuing.revoke())
    now_s = 0.0
    used = chains.use(*lists, clock=lambda: now_s)
    first, now_s = used.server, SESSIONS_S + 1
    assert used.refresh() is None and used.server is not first
    assert chains.refusal(used, chains.issuing) == REVOKED


def test_lists_that_revoke_nothing_let_clients_of_both_in(chains: Chains) -> None:
    used = chains.use(chains.root.revoke(), chains.issuing.revoke())
    assert chains.refusal(used, chains.issuing) == ""
    assert chains.openssl(chains.issuing).endswith("client.pem: OK\n")
    assert chains.refusal(used, chains.root) == "" and used.list_fault() == ""


def test_a_revoked_client_of_an_intermediate_ca_is_refused(chains: Chains) -> None:
    used = chains.use(chains.root.revoke(), chains.issuing.revoke())
    client = chains.client(chains.issuing)
    assert handshake(used.server, client) == ""
    chains.use(chains.root.revoke(), chains.issuing.revoke("client"))
    assert "was read again" in str(used.refresh())
    assert handshake(used.server, client) == REVOKED


def test_the_list_of_the_root_alone_checks_its_own_clients_as_before(chains: Chains) -> None:
    used = chains.use(chains.root.revoke())
    client = chains.client(chains.root)
    assert handshake(used.server, client) == ""
    assert handshake(chains.use(chains.root.revoke("client")).server, client) == REVOKED
    assert chains.refusal(used, chains.issuing) == NO_CRL


def test_without_the_list_of_the_root_the_certificate_of_a_client_alone_is_checked(
    chains: Chains,
) -> None:
    """Operators who have the list of the issuing CA alone go on."""
    chains.root.revoke("Issuing CA")
    used = chains.use(chains.issuing.revoke())
    assert not used.server.verify_flags & CHAIN & ~ssl.VERIFY_CRL_CHECK_LEAF
    assert chains.refusal(used, chains.issuing) == ""
    chains.ca.write_text(Path(chains.root.ca).read_text() + Path(chains.issuing.ca).read_text())
    used = chains.use(chains.issuing.revoke())
    assert chains.refusal(used, chains.issuing) == "" and used.list_fault() == ""


def test_each_ca_between_needs_a_list_where_the_root_has_one(chains: Chains) -> None:
    shown = (chains.last, chains.issuing)
    root, issuing, last = (one.revoke() for one in (chains.root, chains.issuing, chains.last))
    assert chains.refusal(chains.use(root, issuing, last), *shown) == ""
    assert chains.refusal(chains.use(root, last), *shown) == NO_CRL
    assert chains.refusal(chains.use(last), *shown) == ""
    revoked = chains.issuing.revoke("Last CA")
    assert chains.refusal(chains.use(root, revoked, last), *shown) == REVOKED


def test_all_cas_of_the_file_need_a_list_for_the_check_of_chains(
    chains: Chains, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "Other CA")
    chains.ca.write_text(Path(chains.root.ca).read_text() + Path(other.ca).read_text())
    lists = [chains.root.revoke("Issuing CA"), chains.issuing.revoke()]
    for more, found in (((), ""), ((other.revoke(),), REVOKED)):
        used = chains.use(*lists, *more)
        assert chains.refusal(used, chains.issuing) == found


def test_a_file_that_is_not_understood_is_checked_for_the_certificate_alone(
    chains: Chains, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = (chains.root.revoke("Issuing CA"), chains.issuing.revoke())
    for error in (ValueError, IndexError):

        def fail(_content: bytes, error: type[Exception] = error) -> list[bytes]:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(authorities, "subjects", fail)
            used = chains.use(*lists)
        assert chains.refusal(used, chains.issuing) == ""


@pytest.mark.parametrize("part", ["ca", "crl"])
def test_a_pipe_is_refused_where_there_is_a_list(chains: Chains, tmp_path: Path, part: str) -> None:
    """The names in both files are read before OpenSSL reads them."""
    chains.use(chains.root.revoke())
    (tmp_path / f"{part}.pem").unlink()
    os.mkfifo(tmp_path / f"{part}.pem")
    with pytest.raises(ConfigurationError, match="it must be a regular file"):
        chains.use()


def test_a_list_in_the_name_of_the_root_does_not_go_on_with_the_right_one(
    chains: Chains, tmp_path: Path
) -> None:
    """The list of the issuing CA is of no use then: each chain ends at the root."""
    issuing = chains.issuing.revoke()
    used = chains.use(chains.root.revoke(), issuing)
    chains.use(Authority(tmp_path / "other", "Root CA").revoke(), issuing)
    assert "is of no CA in tls_client_ca_file" in str(used.refresh()) and used.refusal
    assert chains.refusal(used, chains.issuing) == ""


def test_nodes_are_checked_likewise(chains: Chains, tmp_path: Path) -> None:
    pair, crl = chains.issuing.chain("n0"), tmp_path / "nodes.pem"
    files = Files("peer_tls_", *pair, str(chains.ca), str(crl), "n0")
    lists = [chains.root.revoke(), chains.issuing.revoke()]
    crl.write_text("".join(Path(path).read_text() for path in lists))
    used = Certificates(files)
    assert used.fault() == ""
    chains.root.revoke("Issuing CA")
    crl.write_text("".join(Path(path).read_text() for path in lists))
    assert "other nodes would refuse it: certificate revoked" in str(used.refresh())
    assert used.fault() == ""
