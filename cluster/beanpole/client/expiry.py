"""The time at which a certificate in a file expires, read from its bytes (DER, RFC 5280).

Whether that is soon, and what to say about it, is decided by callers.
"""

import base64
import calendar
import time
from typing import Final

from beanpole.client.der import fields, signed

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
# Of a certificate's version.
VERSION_TAG: Final = 0xA0
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
    tag, not_after = fields(signed(raw, VERSION_TAG)[_VALIDITY][1])[1]
    return _seconds(tag, not_after.decode("ascii"))


def _seconds(tag: int, text: str) -> float:
    """Parse a time such as 261231235959Z, or one with a four-digit year."""
    if tag == _UTC_TIME_TAG:
        text = ("19" if text[:2] >= "50" else "20") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))
