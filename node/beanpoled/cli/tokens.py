"""The token of a user, which is drawn on the caller's machine and printed once.

It is never sent: the cluster has its digest.
"""

from hashlib import sha256
from secrets import token_urlsafe
from typing import Final, NamedTuple

from beanpole.client import where

TOKEN_BYTES: Final = 32
ONCE: Final = (
    f"this is shown once; commands of beanpole take it from {where.TOKEN_FILE} or {where.TOKEN}"
)


class Token(NamedTuple):
    """The text that its user sends, and what the cluster compares it with."""

    text: str
    digest: bytes


def drawn() -> Token:
    """Draw a new token."""
    text = token_urlsafe(TOKEN_BYTES)
    return Token(text, sha256(text.encode()).digest())
