"""Certificates in PEM files, read from their bytes (DER, RFC 5280): their times and their names.

Callers decide whether an expiry is soon, and how to report it.
"""

import base64
import calendar
import re
import time
from typing import Final, NamedTuple

from beanpole.client.der import Field, fields, signed

# OpenSSL reads certificates under all of these labels.
_PEM: Final = re.compile(
    rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----(.*?)-----END \1-----", re.DOTALL
)
# Of a certificate's version.
VERSION_TAG: Final = 0xA0
# The two forms of a time; the second has a four-digit year.
UTC_TIME_TAG: Final = 0x17
GENERALIZED_TIME_TAG: Final = 0x18
# Positions among the fields of a certificate (RFC 5280, 4.1), after its version.
_VALIDITY: Final = 3
_SUBJECT: Final = 4


class Span(NamedTuple):
    """The time in which a certificate is valid, in seconds since 1970."""

    begin_s: float
    end_s: float


def expires_s(path: str) -> float:
    """Return when the first certificate of a PEM file expires, in seconds since 1970.

    Raises:
        OSError: the file cannot be read.
        ValueError, IndexError: the file is no certificate.
    """
    return all_expire_s(path)[0]


def all_expire_s(path: str) -> list[float]:
    """Return when each certificate of a PEM file expires, in their order.

    Raises:
        OSError: the file cannot be read.
        ValueError, IndexError: the file has no certificate, or something else under its label.
    """
    return [span.end_s for span in spans(path)]


def spans(path: str) -> list[Span]:
    """Return when each certificate of a PEM file is valid, in their order.

    Raises:
        OSError, ValueError, IndexError: see `all_expire_s`.
    """
    return [_span(raw) for raw in certificates(path)]


def subjects(path: str) -> list[bytes]:
    """Return the names of all certificates of a PEM file, as they are in their bytes.

    They are in the order of the certificates; one that is there twice counts once.

    Raises:
        OSError, ValueError, IndexError: see `all_expire_s`.
    """
    return [signed(raw, VERSION_TAG)[_SUBJECT][1] for raw in dict.fromkeys(certificates(path))]


def certificates(path: str) -> list[bytes]:
    """Return all certificates of a PEM file in DER.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has no certificate.
    """
    with open(path, "rb") as file:
        texts = [text for _, text in _PEM.findall(file.read())]
    if not texts:
        raise ValueError("it is no certificate in PEM")
    return [base64.b64decode(text) for text in texts]


def _span(raw: bytes) -> Span:
    begin, end, *_ = fields(signed(raw, VERSION_TAG)[_VALIDITY][1])
    return Span(seconds_of(begin), seconds_of(end))


def seconds_of(field: Field) -> float:
    """Parse a time such as 261231235959Z, or one with a four-digit year.

    Raises:
        ValueError: it is none.
    """
    tag, raw = field
    text = raw.decode("ascii")
    if tag == UTC_TIME_TAG:
        text = ("19" if text[:2] >= "50" else "20") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
