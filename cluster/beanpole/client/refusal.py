"""The alerts of TLS by which a node refuses a client: for its certificate, as a rule.

With TLS 1.3 a client has ended its handshake before the node has checked the client's certificate,
so that it has sent its first request when the alert arrives.
"""

import ssl
from typing import Final

# Alerts that end a handshake and nothing else (RFC 8446, 6.2), of those that a node may send after
# the client's last message of it. `internal_error` and `decode_error` may come later, too.
_ALERTS: Final = frozenset(
    {
        "ACCESS_DENIED",
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "DECRYPT_ERROR",
        "HANDSHAKE_FAILURE",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)


def is_refusal(error: BaseException) -> bool:
    """Whether a node has refused the handshake of TLS by an alert.

    If nothing was read on the connection before, the node has passed on nothing that was sent on
    it, so that no request was done. A reset proves nothing.
    """
    if not isinstance(error, ssl.SSLError):
        return False
    # OpenSSL puts the version before it that introduced the alert: SSLV3_ALERT_BAD_CERTIFICATE.
    return (getattr(error, "reason", None) or "").partition("ALERT_")[2] in _ALERTS
