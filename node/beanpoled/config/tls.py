"""The settings of TLS, and their relations. Certificates are read in `trust`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from beanpole.addresses import has_labels
from beanpole.errors import ConfigurationError
from beanpoled.config.settings import Integer, OptionalPath, Setting

# A handshake in progress takes some 60 KiB and a millisecond of processor time; a thousand workers
# that reconnect together are done in seconds.
HANDSHAKES_MAX_DEFAULT: Final = 200
# Half of them: one address alone cannot keep others out.
HANDSHAKES_PER_ADDRESS_MAX_DEFAULT: Final = 100
# A failed handshake costs as much as a successful one. A few workers that retry every second with a
# wrong certificate stay below this limit; ten failures a second cost a node less than 1 % of a
# core.
FAILED_HANDSHAKES_DEFAULT: Final = 10
# OpenSSL takes such a name for an address, which it does not seek among a certificate's DNS names.
_ADDRESS: Final = re.compile(r"[0-9]+(\.[0-9]+){3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The settings of a node that concern TLS. An empty path means no file."""

    tls_certificate_file: str
    tls_key_file: str
    tls_client_ca_file: str
    tls_crl_file: str
    handshakes_max: int
    handshakes_per_address_max: int
    failed_handshakes_per_second_max: int
    peer_tls_certificate_file: str
    peer_tls_key_file: str
    peer_tls_ca_file: str
    peer_tls_crl_file: str

    @property
    def has_client_tls(self) -> bool:
        """Whether clients may use TLS."""
        return bool(self.tls_certificate_file)

    @property
    def has_peer_tls(self) -> bool:
        """Whether nodes use TLS between each other, including gRPC."""
        return bool(self.peer_tls_certificate_file)


SETTINGS: Final = (
    Setting("tls_certificate_file", OptionalPath(), "", "certificate chain for clients, PEM"),
    Setting("tls_key_file", OptionalPath(), "", "its private key, PEM"),
    Setting("tls_client_ca_file", OptionalPath(), "", "CA of certificates that clients must show"),
    Setting("tls_crl_file", OptionalPath(), "", "certificates of clients that are revoked, PEM"),
    Setting(
        "handshakes_max",
        Integer(1, 100_000),
        HANDSHAKES_MAX_DEFAULT,
        "TLS handshakes with clients in progress at a time, and as many with nodes",
    ),
    Setting(
        "handshakes_per_address_max",
        Integer(1, 100_000),
        HANDSHAKES_PER_ADDRESS_MAX_DEFAULT,
        "those of one address among them",
    ),
    Setting(
        "failed_handshakes_per_second_max",
        Integer(0, 100_000),
        FAILED_HANDSHAKES_DEFAULT,
        "failed TLS handshakes with clients of one address; 0: no limit",
    ),
    Setting("peer_tls_certificate_file", OptionalPath(), "", "certificate of this node, PEM"),
    Setting("peer_tls_key_file", OptionalPath(), "", "its private key, PEM"),
    Setting("peer_tls_ca_file", OptionalPath(), "", "CA of the certificates of all nodes"),
    Setting("peer_tls_crl_file", OptionalPath(), "", "certificates of nodes that are revoked"),
)


def check(config: TlsConfig, tls_addresses: list[str], members: Iterable[str]) -> None:
    """Check the settings against each other.

    Args:
        config: of a node.
        tls_addresses: the addresses for clients with TLS.
        members: the ids of all members.

    Raises:
        ConfigurationError: the message names the setting that is missing or wrong.
    """
    certificate = "tls_certificate_file"
    _check_together(config, (certificate, "tls_key_file"))
    _check_together(config, ("peer_tls_certificate_file", "peer_tls_key_file", "peer_tls_ca_file"))
    for name, needs in (
        ("tls_client_ca_file", certificate),
        ("tls_crl_file", "tls_client_ca_file"),
        ("peer_tls_crl_file", "peer_tls_ca_file"),
    ):
        if getattr(config, name) and not getattr(config, needs):
            raise ConfigurationError(f"{name} has no effect without {needs}: give both or none")
    if tls_addresses and not config.has_client_tls:
        raise ConfigurationError(
            f"{tls_addresses[0]!r} is not allowed: a tls: address needs {certificate} and "
            "tls_key_file"
        )
    if config.has_client_tls and not tls_addresses:
        raise ConfigurationError(
            f"{certificate} has no effect without an address of clients that begins with tls:, "
            "such as listen = tls:0.0.0.0:11301"
        )
    if config.has_peer_tls:
        for member in members:
            _check_name(member)


def _check_name(member: str) -> None:
    """Check that a member's id can be verified as a DNS name: `ssl` raises for some others."""
    if _ADDRESS.fullmatch(member) or not has_labels(member):
        raise ConfigurationError(
            f"members.{member} is not allowed with peer_tls_certificate_file: a node's certificate "
            "has its id as a DNS name, which is no address and has no empty part"
        )


def _check_together(config: TlsConfig, names: tuple[str, ...]) -> None:
    missing = [name for name in names if not getattr(config, name)]
    if missing and len(missing) < len(names):
        raise ConfigurationError(f"{', '.join(missing)} is missing: give all of {', '.join(names)}")
