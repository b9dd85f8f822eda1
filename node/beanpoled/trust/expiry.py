"""The time at which a certificate in a file expires, read from its bytes (DER, RFC 5280).

Whether that is soon, and what to say about it, is decided in `checking` and `examining`.
"""

import base64
import calendar
import time
from collections.abc import Sequence
from typing import Final

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_VERSION_TAG: Final = 0xA0
_UTC_TIME_TAG: Final = 0x17
# Position among the fields of a certificate (RFC 5280, 4.1), after its version.
_VALIDITY: Final = 3


def expires_s(path: str) -> float:
    """Return when the first certificate of a PEM file expires, in seconds since 1970.

    Raises:
        OSError: the file cannot be read.
        ValueError, IndexError: the file is no certificate.
    """
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read()
    if _BEGIN not in text or _END not in text:
        raise ValueError("it is no certificate in PEM")
    raw = base64.b64decode(text.partition(_BEGIN)[2].partition(_END)[0])
    (_, whole), *_ = _fields(raw)
    (_, signed), *_ = _fields(whole)
    fields = [one for one in _fields(signed) if one[0] != _VERSION_TAG]
    tag, not_after = _fields(fields[_VALIDITY][1])[1]
    return _seconds(tag, not_after.decode("ascii"))


def _fields(raw: bytes) -> Sequence[tuple[int, bytes]]:
    """Split DER into its values, with their tags."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(raw):
        tag, size = raw[at], raw[at + 1]
        at += 2
        if size & 0x80:
            more = size & 0x7F
            size = int.from_bytes(raw[at : at + more], "big")
            at += more
        found.append((tag, raw[at : at + size]))
        at += size
    return found


def _seconds(tag: int, text: str) -> float:
    """Parse a time such as 261231235959Z, or one with a four-digit year."""
    if tag == _UTC_TIME_TAG:
        text = ("19" if text[:2] >= "50" else "20") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
