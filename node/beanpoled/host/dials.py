"""Dials of members: the pauses between them, and the words for what failed."""

import os
import socket
import ssl
from typing import Final

from beanpoled.trust.handshakes import WORDS, reason_of

# A peer that does not answer or refuses is retried soon at first, then less often.
DIAL_PAUSE_S: Final = 0.05
DIAL_PAUSE_MAX_S: Final = 0.5


class DialPauses:
    """The pauses before a peer is dialed again: an exponential backoff."""

    def __init__(self) -> None:
        self._pause_s = DIAL_PAUSE_S

    def after(self, lasted_s: float) -> float:
        """Return the pause after an attempt that lasted this long, including its connection."""
        lasted = lasted_s > DIAL_PAUSE_MAX_S
        self._pause_s = DIAL_PAUSE_S if lasted else min(2 * self._pause_s, DIAL_PAUSE_MAX_S)
        return self._pause_s


def why(error: OSError) -> str:
    """Describe briefly why a member could not be dialed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"refuses TLS: {WORDS[reason_of(error)]}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return f"is not found: {error.strerror}"
    return os.strerror(error.errno) if error.errno else str(error)
