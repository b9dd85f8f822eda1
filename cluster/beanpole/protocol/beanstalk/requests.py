"""The requests of beanstalk clients: their numbers and words, the layout of tuples, limits.

A request is a flat tuple whose first item is one of the numbers below; tube names, bodies, keys and
tokens are bytes, all other items are ints. Parsing is in `parser`.
"""

import re
from typing import Any, Final

from beanpole.constants import DEDUP_KEY_MAX_BYTES, TUBE_NAME_MAX_BYTES

Request = tuple[Any, ...]

# --- requests that `stats` counts, numbered in the order of its cmd-* keys -----------------------
PUT: Final = 1  # (PUT, priority, delay_s, ttr_s, body): a TTR of 0 is raised later
PEEK: Final = 2  # (PEEK, job)
PEEK_READY: Final = 3  # (PEEK_READY,)
PEEK_DELAYED: Final = 4  # (PEEK_DELAYED,)
PEEK_BURIED: Final = 5  # (PEEK_BURIED,)
RESERVE: Final = 6  # (RESERVE,)
RESERVE_TIMEOUT: Final = 7  # (RESERVE_TIMEOUT, seconds)
DELETE: Final = 8  # (DELETE, job)
RELEASE: Final = 9  # (RELEASE, job, priority, delay_s)
USE: Final = 10  # (USE, tube)
WATCH: Final = 11  # (WATCH, tube)
IGNORE: Final = 12  # (IGNORE, tube)
BURY: Final = 13  # (BURY, job, priority)
KICK: Final = 14  # (KICK, bound)
TOUCH: Final = 15  # (TOUCH, job)
STATS: Final = 16  # (STATS,)
STATS_JOB: Final = 17  # (STATS_JOB, job)
STATS_TUBE: Final = 18  # (STATS_TUBE, tube)
LIST_TUBES: Final = 19  # (LIST_TUBES,)
LIST_TUBE_USED: Final = 20  # (LIST_TUBE_USED,)
LIST_TUBES_WATCHED: Final = 21  # (LIST_TUBES_WATCHED,)
PAUSE_TUBE: Final = 22  # (PAUSE_TUBE, tube, delay_s)
# --- requests that beanstalkd counts but never shows ---------------------------------------------
RESERVE_JOB: Final = 23  # (RESERVE_JOB, job)
KICK_JOB: Final = 24  # (KICK_JOB, job)
QUIT: Final = 25  # (QUIT,)
# --- lines that are answered without the queue ---------------------------------------------------
# (BAD, reply, counted): `counted` is the request whose counter is incremented nevertheless, or 0.
BAD: Final = 26
# --- extensions of this server (docs/protocol.md, Extensions) ------------------------------------
EXTENSIONS: Final = 27  # (EXTENSIONS,)
PUT_UNIQUE: Final = 28  # (PUT_UNIQUE, priority, delay_s, ttr_s, body, key)
KEEP: Final = 29  # (KEEP, token, seconds)
RESUME: Final = 30  # (RESUME, token)
AUTH: Final = 31  # (AUTH, token): the token of a user, not that of a session

# The counted requests are PUT to PAUSE_TUBE: in a list of counters with an unused first item, the
# slice [PUT : PAUSE_TUBE + 1] has the values of the cmd-* keys in their order.
COUNTERS: Final = PAUSE_TUBE + 1

# The words of the requests, for the parser, the keys of `stats` and the metrics.
WORDS: Final[dict[int, str]] = {
    PUT: "put",
    PEEK: "peek",
    PEEK_READY: "peek-ready",
    PEEK_DELAYED: "peek-delayed",
    PEEK_BURIED: "peek-buried",
    RESERVE: "reserve",
    RESERVE_TIMEOUT: "reserve-with-timeout",
    DELETE: "delete",
    RELEASE: "release",
    USE: "use",
    WATCH: "watch",
    IGNORE: "ignore",
    BURY: "bury",
    KICK: "kick",
    TOUCH: "touch",
    STATS: "stats",
    STATS_JOB: "stats-job",
    STATS_TUBE: "stats-tube",
    LIST_TUBES: "list-tubes",
    LIST_TUBE_USED: "list-tube-used",
    LIST_TUBES_WATCHED: "list-tubes-watched",
    PAUSE_TUBE: "pause-tube",
    RESERVE_JOB: "reserve-job",
    KICK_JOB: "kick-job",
    QUIT: "quit",
    EXTENSIONS: "extensions",
    PUT_UNIQUE: "put-unique",
    KEEP: "keep",
    RESUME: "resume",
    AUTH: "auth",
}
COUNTED_WORDS: Final = tuple([WORDS[kind] for kind in range(PUT, COUNTERS)])

# beanstalkd's LINE_BUF_SIZE, with the CRLF: the size of `pause-tube <200 bytes> 4294967295`.
LINE_MAX_BYTES: Final = 224
# Job ids of the protocol are unsigned 64-bit numbers. Those of Beanpole stay below 2**53, so larger
# ids are well-formed and answered with NOT_FOUND.
U64_MAX: Final = 2**64 - 1
# `reserve-with-timeout`: beanstalkd stores the seconds in a signed int and, since 1.13, refuses
# larger values (before, it wrapped around and returned at once).
TIMEOUT_MAX_S: Final = 2**31 - 1
# beanstalkd raises a TTR of 0, because a job that expires when it is reserved could not be
# finished. Here a policy of the tube may set the value to use instead.
TTR_MIN_S: Final = 1
# The longest time for which the session of a lost client is kept: meanwhile it counts among the
# sessions of the cluster, and its jobs stay reserved.
KEEP_MAX_S: Final = 300
# The token of a session, which the client draws at random. The machine accepts 16 to 64 bytes.
TOKEN_PATTERN: Final = rb"[0-9A-Za-z_\-]{22,64}"

# The token of a user: printable bytes without spaces.
USER_TOKEN_PATTERN: Final = rb"[!-~]{1,128}"

# Letters, digits and -+/;.$_(); the first byte is no hyphen.
TUBE_NAME_PATTERN: Final = rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()\-]{0,%d}" % (
    TUBE_NAME_MAX_BYTES - 1
)
# A deduplication key: printable bytes without spaces.
KEY_PATTERN: Final = rb"[!-~]{1,%d}" % DEDUP_KEY_MAX_BYTES

# The rule in words, for messages.
TUBE_NAME_WORDS: Final = (
    f"1 to {TUBE_NAME_MAX_BYTES} letters of ASCII, digits and -+/;.$_(), no hyphen first"
)
_match_tube_name = re.compile(TUBE_NAME_PATTERN).fullmatch


def is_tube_name(name: bytes) -> bool:
    """Return whether these bytes may name a tube (1 to 200 bytes of the protocol's alphabet)."""
    return _match_tube_name(name) is not None
