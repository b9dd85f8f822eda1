"""The settings that a session can have; those of nodes are checked by `nodes`."""

import re
from typing import Final

from beanpole.protocol.beanstalk.requests import KEEP_MAX_S, USER_TOKEN_PATTERN

_is_token: Final = re.compile(USER_TOKEN_PATTERN).fullmatch


def check_settings(keep_s: int, token: bytes) -> None:
    """Refuse settings that no session can have.

    Raises:
        ValueError: `keep_s` is not from 0 to KEEP_MAX_S, or no user can have the token.
    """
    if not 0 <= keep_s <= KEEP_MAX_S:
        raise ValueError(f"keep must be from 0 to {KEEP_MAX_S} seconds")
    if token and not _is_token(token):
        raise ValueError("a token has 1 to 128 printable bytes of ASCII, and no space")
