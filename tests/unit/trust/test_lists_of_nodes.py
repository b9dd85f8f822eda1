"""Which file is named where other nodes would refuse this one, with a list of revoked certificates.

Times of lists are those of OpenSSL, which has no clock of a test.
"""

from pathlib import Path

import pytest

from beanpoled.trust.certificates import Certificates, Files
from tests.integration.support.authority import Authority


class OfNode:
    """The files of one node for other nodes.

    Attributes:
        authority: its CA.
        crl: the file of the list.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.pair = self.authority.make("n0")
        self.crl = folder / "crl.pem"
        self.put(self.authority.revoke())

    def put(self, made: str) -> None:
        """Put a list in the place of the present one."""
        self.crl.write_bytes(Path(made).read_bytes())

    def use(self) -> Certificates:
        """Start with the files as they are."""
        return Certificates(
            Files("peer_tls_", *self.pair, self.authority.ca, str(self.crl), name="n0")
        )


@pytest.fixture
def own(tmp_path: Path) -> OfNode:
    return OfNode(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("Other CA", "unable to get certificate CRL"), ("", "CRL signature failure")],
)
def test_a_list_of_another_ca_is_named_and_not_the_certificate(
    own: OfNode, name: str, words: str
) -> None:
    """The certificate was named, which is good: operators made another one in vain."""
    used = own.use()
    own.put(Authority(own.folder / "other", name).revoke())
    fault = f"peer_tls_crl_file = '{own.crl}': with it other nodes would refuse this one: {words}"
    assert own.use().fault() == fault
    assert used.refresh() == f"the certificates that were read before stay in use: {fault}"


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("20200101000000Z", "20200102000000Z", "CRL has expired"),
        ("20990101000000Z", "20990102000000Z", "CRL is not yet valid"),
    ],
)
def test_a_list_that_is_not_valid_now_is_named(
    own: OfNode, since: str, until: str, words: str
) -> None:
    own.put(own.authority.revoke(since=since, until=until))
    assert own.use().fault().endswith(f"would refuse this one: {words}")


def test_a_certificate_on_the_list_is_named_itself(own: OfNode) -> None:
    own.put(own.authority.revoke("n0"))
    words = "other nodes would refuse it: certificate revoked"
    assert own.use().fault() == f"peer_tls_certificate_file = '{own.pair[0]}': {words}"
