"""The codes of transitions in the state hash.

A transition is one number: an id (usually of a job), with one of these codes in its low bits.
"""

from typing import Final

PUT: Final = 1
MADE_READY: Final = 2
RESERVE: Final = 3
DELAY: Final = 4
BURY: Final = 5
DELETE: Final = 6
TOUCH: Final = 7
TIMEOUT: Final = 8
SESSION: Final = 9
TUBE: Final = 10
BATCH: Final = 11
RAISED: Final = 12
# Since machine version 3.
FINISH: Final = 13  # a job is done or has failed
EXPIRE: Final = 14  # the TTL of a job ended
# Since machine version 4.
QLESS: Final = 15  # a call of qless: not an id, but a checksum of the call and of its changes
TRANSITION_BITS: Final = 4
