"""The certificates that a list in a file revokes, and when the list is valid (DER, RFC 5280).

OpenSSL checks the list at each handshake; this is for connections that were made before:
`standing` decides which of them end.
"""

import base64
import math
import re
from collections.abc import Mapping
from typing import Final

from beanpole.client.der import fields, signed
from beanpole.client.expiry import (
    GENERALIZED_TIME_TAG,
    UTC_TIME_TAG,
    VERSION_TAG,
    Span,
    seconds_of,
)
from beanpoled.trust.regular_files import read_regular

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
_THIS_UPDATE: Final = 2
_NEXT_UPDATE: Final = 3


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
    return frozenset(one for raw in _lists(path) for one in _revoked(raw))


def issuers(path: str) -> frozenset[bytes]:
    """Return the names of the CAs whose lists are in a PEM file. Raises what `read` raises."""
    return frozenset(signed(raw, _INTEGER_TAG)[_ISSUER_OF_LIST][1] for raw in _lists(path))


def spans(path: str) -> dict[bytes, Span]:
    """Return when the lists in a PEM file are valid, by their issuers.

    Of several lists of one issuer the first begin and the last end count; a list without an end is
    valid for ever.

    Raises:
        OSError: the file cannot be read.
        ValueError, IndexError: it has something else, or no list.
    """
    found: dict[bytes, Span] = {}
    for raw in _lists(path):
        parts = signed(raw, _INTEGER_TAG)
        issuer = parts[_ISSUER_OF_LIST][1]
        next_update = parts[_NEXT_UPDATE] if len(parts) > _NEXT_UPDATE else (0, b"")
        has_end = next_update[0] in (UTC_TIME_TAG, GENERALIZED_TIME_TAG)
        end_s = seconds_of(next_update) if has_end else math.inf
        one = Span(seconds_of(parts[_THIS_UPDATE]), end_s)
        other = found.get(issuer, one)
        found[issuer] = Span(min(one.begin_s, other.begin_s), max(one.end_s, other.end_s))
    return found


def valid_spans(path: str) -> dict[bytes, Span]:
    """Return when the lists in a file are valid, by their issuers; none if that is unknown.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return spans(path)
    except (ValueError, IndexError):  # OpenSSL may read more than this program
        return {}


def are_newer(fresh: Mapping[bytes, Span], used: Mapping[bytes, Span], now_s: float) -> bool:
    """Whether each list that is not valid has expired, and is newer than that of its CA in use."""
    return all(
        one.begin_s <= now_s and (issuer not in used or used[issuer].begin_s < one.begin_s)
        for issuer, one in fresh.items()
        if not one.begin_s <= now_s < one.end_s
    )


def span(path: str) -> Span:
    """Return when all issuers of the lists in a PEM file have a valid one.

    At another time OpenSSL accepts no certificate of an issuer. Raises what `spans` raises.
    """
    found = spans(path).values()
    return Span(max(one.begin_s for one in found), min(one.end_s for one in found))


def _lists(path: str) -> list[bytes]:
    lists = _PEM.findall(read_regular(path)[0])
    if not lists:
        raise ValueError("it has no list of revoked certificates")
    return [base64.b64decode(text) for text in lists]


def _revoked(raw: bytes) -> list[Identity]:
    parts = signed(raw, _INTEGER_TAG)
    issuer = parts[_ISSUER_OF_LIST][1]
    # Behind the issuer are one or two times, and the entries, which an empty list omits.
    entries = next(
        (value for tag, value in parts[_ISSUER_OF_LIST + 1 :] if tag == _SEQUENCE_TAG), b""
    )
    return [(issuer, fields(entry)[0][1]) for _, entry in fields(entries)]
