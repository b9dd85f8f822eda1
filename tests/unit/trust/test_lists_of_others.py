"""Lists of revoked certificates that are of no CA of clients: what they replace, who tells."""

import ssl
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpoled import main
from beanpoled.trust.authorities import canonical
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.trust import Trust
from tests.integration.support.authority import Authority
from tests.unit.node.stage import config
from tests.unit.trust.test_certificates import handshake

READ = "tls_certificate_file and what belongs to it was read again"
STAY = "the certificates that were read before stay in use: "


class Listed:
    """The files of a node for clients, which a test replaces.

    Attributes:
        folder: for other CAs.
        root: the CA in the file of those of clients.
        told: the logged lines.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = Authority(folder / "root", "Root CA")
        self.paths = {part: folder / f"{part}.pem" for part in ("own", "ca", "crl")}
        self.show(self.root.make("n0"))
        self.put("ca", self.root.ca)
        self.put("crl", self.root.revoke())
        self.told: list[str] = []
        self.trust = Trust("test", "n0", "", lambda line, *_: self.told.append(line))

    @property
    def fault(self) -> str:
        """How a list of another CA is told."""
        crl, ca = (str(self.paths[part]) for part in ("crl", "ca"))
        return f"tls_crl_file = {crl!r} is of no CA in tls_client_ca_file = {ca!r}: certificates"

    def show(self, pair: tuple[str, str]) -> None:
        """Let the node have another certificate."""
        self.put("own", *pair)

    def put(self, part: str, *others: str) -> None:
        """Put the contents of other files in the place of one."""
        self.paths[part].write_text("".join(Path(path).read_text() for path in others))

    def use(self) -> Certificates:
        """Start with the files as they are."""
        own, ca, crl = (str(self.paths[part]) for part in ("own", "ca", "crl"))
        self.trust.of_clients = Certificates(Files("tls_", own, own, ca, crl))
        return self.trust.of_clients

    def other(self, name: str, above: Authority | None = None) -> Authority:
        return Authority(self.folder / f"other {len(list(self.folder.iterdir()))}", name, above)

    def refusal(self, pair: tuple[str, str]) -> str:
        """Why a client with this certificate is refused."""
        used = self.trust.of_clients
        assert used is not None
        context = self.root.client(pair)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return handshake(used.server, context)


@pytest.fixture
def listed(tmp_path: Path) -> Listed:
    return Listed(tmp_path)


@pytest.mark.parametrize("name", ["Other CA", "Root CA"])
def test_a_list_of_another_ca_does_not_replace_a_good_one(listed: Listed, name: str) -> None:
    """Every client was refused, and the reload said that the files were read again."""
    client = listed.root.make("client")
    first = listed.use().server
    listed.put("crl", listed.other(name).revoke())
    assert listed.trust.refresh(is_asked=True) == listed.trust.refresh() == []
    assert len(listed.told) == 1 and listed.told[0].startswith(STAY + listed.fault)
    assert listed.trust.refused_files() == {"tls_": listed.told[0]}
    assert listed.trust.of_clients and listed.trust.of_clients.server is first
    assert listed.trust.list_faults() == [] and listed.refusal(client) == ""
    listed.put("crl", listed.root.revoke("client"))
    assert listed.trust.refresh() == [READ] and listed.trust.refused_files() == {}
    assert listed.refusal(client) == "certificate_revoked"


def test_a_list_beside_the_good_one_is_taken(listed: Listed) -> None:
    listed.use()
    listed.put("crl", listed.other("Other CA").revoke(), listed.root.revoke())
    assert listed.trust.refresh() == [READ]


def test_other_cas_wait_for_their_list(listed: Listed) -> None:
    """Files are replaced one after the other; between them no client would be let in."""
    listed.use()
    other = listed.other("Other CA")
    listed.put("ca", other.ca)
    assert listed.trust.refresh() == [] and listed.told[0].startswith(STAY + listed.fault)
    listed.put("crl", other.revoke())
    assert listed.trust.refresh() == [READ] and listed.refusal(other.make("client")) == ""


def test_it_replaces_one_that_is_not_better_and_is_named(listed: Listed) -> None:
    listed.put("crl", listed.other("Other CA").revoke())
    listed.use()
    lines: list[str] = []
    host: Any = SimpleNamespace(log=lambda line, *_: lines.append(line), trust=listed.trust)
    main._tell(config(), host)
    assert sum(line.startswith(listed.fault) for line in lines) == 1, "at a start"
    listed.put("crl", listed.other("Another CA").revoke())
    (line,) = listed.trust.refresh()
    assert line.startswith(f"{READ}; {listed.fault}")


@pytest.mark.parametrize("other", ["Issuing CA", "Other CA"])
def test_a_list_without_that_of_the_ca_in_the_file_is_refused(listed: Listed, other: str) -> None:
    """The list beside it was taken for one that goes on, and clients of the CA were refused."""
    made = listed.other(other, listed.root if other == "Issuing CA" else None)
    listed.put("crl", listed.root.revoke(), made.revoke())
    listed.use()
    listed.put("crl", made.revoke())
    assert listed.trust.refresh() == [] and listed.told[0].startswith(STAY + listed.fault)
    assert listed.refusal(listed.root.make("client")) == ""


def test_another_certificate_of_the_node_does_not_make_a_list_wrong(listed: Listed) -> None:
    issuing = listed.other("Issuing CA", listed.root)
    listed.show(issuing.chain("n0"))
    listed.put("crl", issuing.revoke())
    assert listed.use().list_fault() == ""
    listed.show(listed.other("Next CA", listed.root).chain("n0"))
    assert len(listed.trust.refresh()) == 1 and listed.trust.refused_files() == {}
    assert listed.refusal(issuing.chain("client")) == ""


def test_one_of_two_cas_of_a_name_may_have_made_the_list(listed: Listed) -> None:
    """A CA with a new key has its name still; the node shows a certificate by the old one."""
    listed.use()
    renewed = listed.other("Root CA")
    listed.put("ca", listed.root.ca, renewed.ca)
    listed.put("crl", renewed.revoke())
    assert listed.trust.refresh() == [READ] and listed.trust.list_faults() == []
    assert listed.refusal(renewed.make("client")) == ""


def test_names_are_compared_as_openssl_does(listed: Listed) -> None:
    """The file has the same CA with its name written in another way."""
    listed.show(listed.other("Other CA").make("n0"))
    key, named = str(listed.root.place / "ca.key"), str(listed.folder / "named.pem")
    line = ["openssl", "req", "-x509", "-key", key, "-subj", "/CN=root  ca", "-out", named]
    subprocess.run(line, check=True, capture_output=True)
    listed.put("ca", named)
    assert listed.use().list_fault() == "" and listed.refusal(listed.root.make("client")) == ""


def test_names_that_are_equal_to_openssl() -> None:
    def name(tag: int, value: bytes) -> bytes:
        return field(0x31, field(0x30, field(6, b"\x55\x04\x03") + field(tag, value)))

    kinds = ((0x0C, "utf-8"), (0x14, "latin-1"), (0x1C, "utf-32-be"), (0x1E, "utf-16-be"))
    texts = [(tag, text.encode(codec)) for tag, codec in kinds for text in ("Ä b", " Ä   B ")]
    assert len({canonical(name(*one)) for one in texts}) == 1
    assert canonical(name(0x13, b"A b")) == canonical(name(0x16, b"a  B "))
    for other in (name(0x13, b"ab"), name(0x12, b"A b"), name(0x13, b"A b") * 2):
        assert canonical(other) != canonical(name(0x13, b"A b"))
    with pytest.raises(ValueError, match="codec"):
        canonical(name(0x0C, b"\xff"))


def field(tag: int, value: bytes) -> bytes:
    return bytes((tag, len(value))) + value
