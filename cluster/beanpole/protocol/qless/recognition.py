"""Recognise the dialect of a qless script by its text; no Lua is executed.

A script of one of the later forms declares its calls as functions of a table, and the names of
their arguments distinguish the dialects. The seed form has one script for each call: its error
strings name the call, and its assertions give the position of each argument. A script with unknown
declarations is not recognised.
"""

import hashlib
import re
from typing import Final, NamedTuple

from beanpole.qless import CORE, DOTTED, SEED, THROTTLES, UNIFIED

# The largest known script has 78 kB.
TEXT_MAX_BYTES: Final = 512 * 1024


class Script(NamedTuple):
    """A recognised script.

    Attributes:
        flavour: its dialect, one of `beanpole.qless.FLAVOURS`.
        sha: the SHA-1 of its text, 40 hexadecimal digits, as Redis names scripts.
        call: the call that a script of the seed form implements, in lower case.
        names: the calls that a script of another form declares.
        peeks_from: whether its `peek` has an offset.
        names_queue: whether its errors name the argument `queue` as `queue_name`.
        names_jid: whether its errors name the job that was not running.
        cancels_many: whether `cancel` takes more than one job, in the seed form.
    """

    flavour: int
    sha: bytes
    call: bytes = b""
    names: frozenset[bytes] = frozenset()
    peeks_from: bool = False
    names_queue: bool = False
    names_jid: bool = False
    cancels_many: bool = False


# function QlessAPI.put(now, ...), QlessAPI.put = function(now, ...), QlessAPI['put'] = ...
_DECLARATION: Final = re.compile(
    rb"^[ \t]*(?:function[ \t]+)?(?:Qless|Reqless)API"
    rb"(?:\.(\w+)|\[[ \t]*['\"]([\w.]+)['\"][ \t]*\])"
    rb"[ \t]*(?:=[ \t]*function[ \t]*)?\(([^()\n]*)\)",
    re.MULTILINE,
)

# The arguments of the calls that distinguish the dialects, without `now`. Two dialects name the
# worker that puts a job `me`.
_PUT: Final = (b"queue", b"jid", b"klass", b"data", b"delay", b"...")
_PUT_BY_ME: Final = (b"me", *_PUT)
_PUT_BY_WORKER: Final = (b"worker", *_PUT)
_POPS: Final = ((b"queue", b"worker", b"count"), (b"queue", b"worker", b"limit"))
_PEEKS: Final = ((b"queue", b"count"), (b"queue", b"limit"))
_PEEKS_FROM: Final = (
    (b"queue", b"offset", b"count"),
    (b"queue", b"offset", b"limit"),
)

# 'Put(): Arg "jid" missing', and error('Put(): ...'): the call of a script of the seed form.
_SAYS: Final = re.compile(rb"['\"](\w+)\(\): ")
# local jid = assert(ARGV[1], ...): the position of an argument.
_POSITION: Final = re.compile(
    rb"^[ \t]*local[ \t]+(\w+)[ \t]*=[ \t]*assert\([ \t]*(?:tonumber\(|cjson\.decode\()?[ \t]*"
    rb"(KEYS|ARGV)\[(\d+)\]",
    re.MULTILINE,
)
# Added to the position of a key, so that it differs from those of ARGV.
_KEYS: Final = 100
# The positions of the arguments of each call, by their names in the scripts. Arguments that a
# script does not assert are omitted, and so are those that are asserted at several positions, in
# calls whose first argument is a subcommand.
_SEED: Final[dict[bytes, dict[bytes, int]]] = {
    b"cancel": {b"jid": 1},
    b"complete": {b"jid": 1, b"worker": 2, b"queue": 3, b"now": 4, b"data": 5},
    b"config": {},
    b"depends": {b"jid": 1, b"command": 2},
    b"deregisterworkers": {},
    b"fail": {b"jid": 1, b"worker": 2, b"group": 3, b"message": 4, b"now": 5},
    b"failed": {b"start": 2, b"limit": 3},
    b"get": {b"jid": 1},
    b"getconfig": {},
    b"heartbeat": {b"jid": 1, b"worker": 2, b"now": 3},
    b"jobs": {},
    b"pause": {},
    b"peek": {b"queue": _KEYS + 1, b"count": 1, b"now": 2},
    b"pop": {b"queue": _KEYS + 1, b"worker": 1, b"count": 2, b"now": 3},
    b"priority": {b"jid": 1, b"priority": 2},
    b"put": {b"queue": _KEYS + 1, b"jid": 1, b"klass": 2, b"data": 3, b"now": 4, b"delay": 5},
    b"queues": {b"now": 1},
    b"recur": {},
    b"retry": {b"jid": 1, b"queue": 2, b"worker": 3, b"now": 4, b"delay": 5},
    b"setconfig": {},
    b"stats": {b"queue": 1, b"time": 2},
    b"tag": {},
    b"track": {},
    b"unfail": {b"now": 1, b"group": 2, b"queue": 3, b"count": 4},
    b"unpause": {},
    b"workers": {b"now": 1},
}
_WITH_JID: Final = re.compile(rb"Complete\(\): Job ['\"]\s*\.\.\s*self\.jid")
_CANCEL_MANY: Final = re.compile(rb"^--[ \t]*Cancel\(0, jid, ", re.MULTILINE)

# The published scripts of the seed form (qless-py 0.9.4), by their SHA-1.
KNOWN: Final[dict[bytes, bytes]] = {
    b"33e2743326c5b85fbc0bc09be8a94d30cb87bd85": b"cancel",
    b"4ea4ea025c743c27cf32a593e1ef19c0793b2966": b"complete",
    b"a5aa719f665348051a1ebb0d099f70177abea8e4": b"config",
    b"1acfefa269b75004e0301c849cbe2bc9438099d1": b"depends",
    b"8e09b2bbf7463adcc2524ecf385d210959b3eb68": b"fail",
    b"38f46fe12c17f778af5f78f174d5849b277d161f": b"failed",
    b"f7526d197070c9e82c28fad331b4c020585aad20": b"get",
    b"54db3ad1dc28fe7c6ac02048f09f6dc2a3f46bab": b"heartbeat",
    b"a46fc07a531841ffd27137dcb69b7028de83e1f9": b"jobs",
    b"ae9126f3aa3269591b47eb0ffcf589c2b46228a2": b"peek",
    b"61baca2fab3027df6c1f61da193d9fd57978cbf9": b"pop",
    b"fc8b87ff938cf8f29686a36ebdd9c5093cf76891": b"priority",
    b"9f337bb14d1c5685e33df12db0c4cf9b3706ee82": b"put",
    b"6339a8db6a6f8d02ee6899f25bbf3fee4f7a3c43": b"queues",
    b"a7784f33225979301e4951921d1ed5b787725e7c": b"recur",
    b"6b383314b03348df66ba04a06d40fb68bbe6c9ef": b"retry",
    b"a4dfd645bdc9106b589a268de752d2b9bd336632": b"stats",
    b"b1ebe42c711a53926d397c2a359c1d95ebd346ad": b"tag",
    b"6c34b124c452c1cd5a2aa32d8b89bcac6e5488e3": b"track",
    b"fbd3899fc6b07e8345b23086714f91439a529213": b"unfail",
    b"1800b80cd4dab43381f351bf6299cc5d8873895f": b"workers",
}


def recognise(text: bytes) -> Script | None:
    """Return the dialect, and in the seed form the call, of a script; None if it is unknown."""
    if len(text) > TEXT_MAX_BYTES:
        return None
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    call = KNOWN.get(sha)
    if call is not None:
        return Script(SEED, sha, call)
    declared = {
        one.group(1) or one.group(2): tuple(
            [name.strip().lstrip(b"_") for name in one.group(3).split(b",")]
        )
        for one in _DECLARATION.finditer(text)
    }
    if declared:
        return _unified(text, sha, declared)
    return _seed(text, sha)


def _unified(text: bytes, sha: bytes, declared: dict[bytes, tuple[bytes, ...]]) -> Script | None:
    if any(arguments[0] != b"now" for arguments in declared.values()):
        return None
    calls = {name: arguments[1:] for name, arguments in declared.items()}
    if b"queue.put" in calls:
        put, pop, peek = (calls.get(b"queue." + one) for one in (b"put", b"pop", b"peek"))
        flavour = DOTTED
        fits = put in (_PUT_BY_ME, _PUT_BY_WORKER)
    else:
        put, pop, peek = (calls.get(one) for one in (b"put", b"pop", b"peek"))
        flavour = THROTTLES if b"throttle.set" in calls else UNIFIED if put == _PUT else CORE
        fits = put in (_PUT_BY_ME, _PUT_BY_WORKER) or flavour == UNIFIED
    if not fits or pop not in _POPS or peek not in _PEEKS + _PEEKS_FROM:
        return None
    return Script(
        flavour,
        sha,
        names=frozenset(calls),
        peeks_from=peek in _PEEKS_FROM,
        names_queue=b'Arg "queue_name" missing' in text,
        names_jid=_names_jid(text, flavour),
    )


def _names_jid(text: bytes, flavour: int) -> bool:
    if _WITH_JID.search(text):
        return True
    return b"Complete(): Job does not exist" not in text and flavour == CORE


def _seed(text: bytes, sha: bytes) -> Script | None:
    said = {one.group(1).lower().replace(b"_", b"") for one in _SAYS.finditer(text)}
    if len(said) != 1:
        return None
    call = said.pop()
    expected = _SEED.get(call)
    if expected is None or b"redis.call(" not in text:
        return None
    places = {
        one.group(1): int(one.group(3)) + (_KEYS if one.group(2) == b"KEYS" else 0)
        for one in _POSITION.finditer(text)
    }
    if any(places.get(name, place) != place for name, place in expected.items()):
        return None
    return Script(SEED, sha, call, cancels_many=_CANCEL_MANY.search(text) is not None)
