"""Errors of the place of an export that end by themselves: an outage, or a disk that is full.

An export that goes on for ever waits for their end. Any other error would only be repeated.
"""

import errno
import re
from typing import Final

from beanpole.errors import BeanpoleError

# A disk gets room again when other files are removed.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# The refusals of S3, in the words of Arrow, whose errors have no number. HEAD has no body, so that
# only the HTTP status may be known: 3xx is another region's bucket.
_REFUSED: Final = re.compile(
    r"AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|INVALID_SIGNATURE"
    r"|MISSING_AUTHENTICATION_TOKEN|NO_SUCH_BUCKET|OPT_IN_REQUIRED|SIGNATURE_DOES_NOT_MATCH"
    r"|UNRECOGNIZED_CLIENT)\b|HTTP status (?:3\d\d|40[013])\b"
)


def may_heal(error: OSError | BeanpoleError) -> bool:
    """Whether the same step may succeed later, without a change of the command or its rights."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return False
    if cause.errno is not None:
        return cause.errno in _FULL
    return _REFUSED.search(str(cause)) is None
