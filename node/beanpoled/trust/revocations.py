"""The certificates that a list in a file revokes, read from its bytes (DER, RFC 5280).

OpenSSL checks the list at each handshake; this is for connections that were made before. What is
done with them is decided in `standing`.
"""

import base64
import re
from typing import Final

from beanpole.client.der import fields, signed
from beanpole.client.expiry import VERSION_TAG

# A certificate's issuer and its serial number, as they are in its bytes.
Identity = tuple[bytes, bytes]

_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
# Of a list's version, the only number among its fields.
_INTEGER_TAG: Final = 0x02
_SEQUENCE_TAG: Final = 0x30
# Positions among the fields of a certificate (RFC 5280, 4.1) and a list (5.1), after the version.
_SERIAL: Final = 0
_ISSUER: Final = 2
_ISSUER_OF_LIST: Final = 1


def identity(certificate: bytes) -> Identity:
    """Return the identity of a certificate.

    Args:
        certificate: in DER.

    Raises:
        ValueError, IndexError: it is no certificate.
    """
    parts = signed(certificate, VERSION_TAG)
    return parts[_ISSUER][1], parts[_SERIAL][1]


def read(path: str) -> frozenset[Identity]:
    """Return the certificates that the lists in a PEM file revoke.

    Raises:
        OSError: the file cannot be read.
        ValueError, IndexError: it has something else, or no list.
    """
    with open(path, "rb") as file:
        lists = _PEM.findall(file.read())
    if not lists:
        raise ValueError("it has no list of revoked certificates")
    return frozenset(one for text in lists for one in _revoked(base64.b64decode(text)))


def _revoked(raw: bytes) -> list[Identity]:
    parts = signed(raw, _INTEGER_TAG)
    issuer = parts[_ISSUER_OF_LIST][1]
    # Behind the issuer are one or two times, and the entries, which an empty list omits.
    entries = next(
        (value for tag, value in parts[_ISSUER_OF_LIST + 1 :] if tag == _SEQUENCE_TAG), b""
    )
    return [(issuer, fields(entry)[0][1]) for _, entry in fields(entries)]
