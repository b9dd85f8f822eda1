"""The calls of a connection: scripts, and the few keys that clients read.

`protocol.qless` interprets a script and its arguments; here the call becomes one command, and its
result a reply. Every call goes through the log, even one that only reads, so that it sees every
command that was answered on any node before.
"""

import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

from beanpole import qless as q
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.operations import qless as operations
from beanpole.core.operations.qless_permission import user_may
from beanpole.core.qless.calls import CALLS
from beanpole.core.qless.shapes import is_number
from beanpole.core.users import may_be_name
from beanpole.events import QLESS
from beanpole.protocol.qless import answers, views
from beanpole.protocol.qless import calls as dialects
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.resp.globs import PATTERN_MAX_BYTES, Pattern, Text
from beanpole.protocol.resp.values import OK, Double, Error, Value, encode
from beanpoled.frontends.clients import NO_RIGHT, NO_TOKEN, Clients
from beanpoled.frontends.held_requests import HELD_BYTES_MIN
from beanpoled.frontends.qless import shared as kinds
from beanpoled.frontends.qless.heaviness import cost_of
from beanpoled.frontends.qless.session import QlessSession
from beanpoled.frontends.qless.shared import Shared
from beanpoled.frontends.requests import (
    PUT_DRAINING,
    PUT_NO_MAJORITY,
    PUT_NO_ROOM,
)
from beanpoled.host.seam import ClientPort
from beanpoled.origin.heavy import LIGHT_MAX

# The kind of all calls: their context is kept in the order of the log.
KIND_CALL: Final = 1
KIND_AUTH: Final = 2
KIND_RESET: Final = 3
# A call, too; but its result matters for the audit log, also when its client has gone.
KIND_FLUSH: Final = 4

SHA_BYTES: Final = 40
# The result of a POP that finds no jobs.
_NO_JOBS: Final = (q.OK, ())
# Calls whose replies may contain the data of jobs, patterns, or hundreds of names of 4 KiB.
_LARGE: Final = (
    *(q.GET, q.MULTIGET, q.POP, q.PEEK, q.TRACKED, q.FAILED_JOBS, q.RECUR_GET, q.CONFIG_ALL),
    *(q.PATTERNS, q.JOBS, q.TAGGED, q.TOP_TAGS, q.FAILED_GROUPS, q.QUEUE_NAMES, q.WORKER_COUNTS),
    *(q.WORKER_JOBS, q.THROTTLE_LOCKS, q.THROTTLE_PENDING),
)
_MAKING: Final = (q.PUT, q.RECUR)

NOSCRIPT: Final = Error(b"NOSCRIPT No matching script. Please use EVAL.")
UNSUPPORTED: Final = Error(b"ERR unsupported script: it is of no dialect of qless that is known")
NO_NUMBER: Final = Error(b"ERR value is not an integer or out of range")
TOO_MANY_KEYS: Final = Error(b"ERR Number of keys can't be greater than number of args")
NEGATIVE_KEYS: Final = Error(b"ERR Number of keys can't be negative")
SYNTAX: Final = Error(b"ERR syntax error")
BAD_FLUSH: Final = Error(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
DRAINING: Final = Error(b"ERR this node is draining: it makes no jobs")
TOO_LARGE: Final = Error(b"ERR the arguments of a call have %d bytes at most" % q.ARGS_MAX_BYTES)
NO_MAJORITY: Final = Error(b"ERR no majority of the nodes answers: it was not done")
NO_ROOM: Final = Error(b"ERR a limit of the cluster is reached: nothing was done")
OTHER_KEY: Final = Error(b"ERR only the keys ql:q:QUEUE-recur can be read")
_PUT_REFUSALS: Final = {
    PUT_DRAINING: (kinds.DRAINING, DRAINING),
    PUT_NO_ROOM: (q.REFUSALS[q.NO_ROOM], NO_ROOM),
    PUT_NO_MAJORITY: (kinds.NO_MAJORITY, NO_MAJORITY),
}
LONG_PATTERN: Final = Error(b"ERR a pattern has %d bytes at most" % PATTERN_MAX_BYTES)

# The objects that `beanpole import-qless` sends.
_IMPORTS: Final = {
    b"job": q.IMPORT_JOB,
    b"recurring": q.IMPORT_RECURRING,
    b"queue": q.IMPORT_QUEUE,
}
HISTORY: Final = 12  # the place of the history in the arguments of IMPORT_JOB
BAD_IMPORT: Final = Error(b"ERR wrong arguments of an import: nothing was done")
ITSELF: Final = Error(b"ERR nothing was done: the job would depend on itself")

DEFAULT_USER: Final = b"default"
WRONG_USER: Final = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
# Redis's errors for a client that has not authenticated, and for a client that has.
NO_AUTH: Final = Error(b"NOAUTH Authentication required.")
NO_PERMISSION: Final = Error(b"NOPERM this user has no permissions to do that")

_match_recurring = re.compile(rb"ql:q:(.*)-recur", re.DOTALL).fullmatch
# The key that KEYS and DBSIZE report if there is any data: clients only test for emptiness.
ANYTHING: Final = b"ql:"
# Of the names of queues.
PREFIX: Final = SPACES[QLESS].prefix
# Bytes of arguments that a client may send before others have a turn: the strangest JSON takes 2.5
# us for a byte (`cjson`). A larger call is read only if its user has some right.
READ_IN_A_ROW_BYTES: Final = 4096

_is_number = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch
MODES: Final = (b"sync", b"async")


def number(word: bytes) -> int | None:
    """Return a 64-bit number as Redis reads it; None if the word is not one."""
    found = int(word) if _is_number(word) else None
    return found if found is not None and -(2**63) <= found < 2**63 else None


@final
class Asked:
    """A call in progress: its formatter, and the size that is owed for it."""

    __slots__ = ("call", "formatter", "is_heavy", "owed_bytes", "script")

    def __init__(
        self,
        script: Script | None,
        call: dialects.Call | None,
        formatter: Callable[[q.Result], Value] | None,
        owed_bytes: int,
    ) -> None:
        self.script = script
        self.call = call
        self.formatter = formatter  # of a command that is not a script
        self.owed_bytes = owed_bytes
        self.is_heavy = False  # the requests behind it wait

    def value(self, result: q.Result) -> Value:
        """Return the reply to the call with this result."""
        if self.formatter is not None:
            return self.formatter(result)
        assert self.script is not None and self.call is not None
        return answers.answer(self.script, self.call, result)


class CallSide(QlessSession):
    """A connection that makes qless calls."""

    __slots__ = ("_asked", "_read_bytes")

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        self._asked: deque[Asked] = deque()  # in the order of the log, that of the requests
        self._read_bytes = 0  # of arguments, since others had a turn for them

    # --- users ----------------------------------------------------------------------------------

    @property
    def has_users(self) -> bool:
        """Whether the cluster has users; without any, Redis's `default` user is accepted."""
        return bool(self._clients.machine.users.rows)

    def _has_some_right(self) -> bool:
        """Whether the user has a right in some queue of qless."""
        users = self._clients.machine.users
        if not users.rows:
            return True
        self._session()  # the rights may depend on the session's user
        return bool(users.of(self.user, self.token).on_some_of(PREFIX))

    def _admit_read(self, arguments: list[bytes], again: Callable[[], None]) -> bool:
        """Let the arguments of a call be read, or return False: it is held or refused.

        The right that the call needs is known, and checked, only once they are read.
        """
        size = sum([len(word) for word in arguments])
        self._read_bytes += size
        if self._read_bytes >= READ_IN_A_ROW_BYTES:
            self._read_bytes = 0
            self._row_is_over = True
            if size >= READ_IN_A_ROW_BYTES and not self._has_some_right():
                if not self._hold_request(size, again):
                    self.refuse(q.REFUSALS[q.DENIED], self._deny())
                return False
        return True

    def log_in(self, user: bytes, token: bytes, hello: tuple[int, bytes] | None = None) -> None:
        """Become a user by its token; no reply is pending before. `hello`: see `QlessSession`.

        Clients that are configured with only a password name no user, or `default`.
        """
        name = b"" if user == DEFAULT_USER else user
        if name and not may_be_name(name):
            self.say(WRONG_USER)
            return
        self._hello = hello
        self._session()
        self._authenticate(KIND_AUTH, token, name)

    def log_out(self, accepted: bytes) -> None:
        """Forget the user of a token, with the session, and answer; no reply is pending before.

        That is a step of its own, because the requests so far are those of the user: they spend its
        rate.
        """
        self.blocked = True
        self._replies.expect(KIND_RESET)
        self._clients.host.call_soon(partial(self._logged_out, accepted))

    def _logged_out(self, accepted: bytes) -> None:
        if self.closed:
            return
        self._clients.origin.close(self, lost=False)
        self.user = self.token = b""
        self.is_metered = False  # the next request may authenticate it again
        self._answer_alone(accepted)

    # --- scripts --------------------------------------------------------------------------------

    def script_load(self, arguments: list[bytes]) -> None:
        """SCRIPT LOAD text."""
        sha, script = self._shared.scripts.load(arguments[2])
        if script is None:
            self.refuse(kinds.UNSUPPORTED_SCRIPT, UNSUPPORTED)
        else:
            self.say(sha)

    def script_exists(self, arguments: list[bytes]) -> None:
        """SCRIPT EXISTS sha..."""
        scripts = self._shared.scripts
        self.say([int(scripts.find(sha) is not None) for sha in arguments[2:]])

    def script_flush(self, arguments: list[bytes]) -> None:
        """SCRIPT FLUSH [ASYNC | SYNC]."""
        if len(arguments) > 3 or (len(arguments) == 3 and arguments[2].lower() not in MODES):
            self.say(BAD_FLUSH)
        else:
            self._shared.scripts.flush()
            self.say(OK)

    def eval_sha(self, arguments: list[bytes]) -> None:
        """EVALSHA sha numkeys [key...] [argument...]."""
        count = number(arguments[2])
        if len(arguments[1]) != SHA_BYTES:
            self.refuse(kinds.NO_SCRIPT, NOSCRIPT)
        elif self._check_keys(count, arguments):
            script = self._shared.scripts.find(arguments[1])
            if script is None:
                self.refuse(kinds.NO_SCRIPT, NOSCRIPT)
            else:
                self._call_script(script, arguments, count or 0)

    def eval_text(self, arguments: list[bytes]) -> None:
        """EVAL text numkeys [key...] [argument...]."""
        count = number(arguments[2])
        if self._check_keys(count, arguments):
            _, script = self._shared.scripts.load(arguments[1])
            if script is None:
                self.refuse(kinds.UNSUPPORTED_SCRIPT, UNSUPPORTED)
            else:
                self._call_script(script, arguments, count or 0)

    def _check_keys(self, count: int | None, arguments: list[bytes]) -> bool:
        """Refuse a wrong number of keys and return False."""
        if count is None:
            self.say(NO_NUMBER)
        elif count > len(arguments) - 3:
            self.say(TOO_MANY_KEYS)
        elif count < 0:
            self.say(NEGATIVE_KEYS)
        else:
            return True
        return False

    def _call_script(self, script: Script, arguments: list[bytes], keys: int) -> None:
        if not self._admit_read(arguments, partial(self._call_script, script, arguments, keys)):
            return
        call = dialects.read(script, arguments[3 : 3 + keys], arguments[3 + keys :])
        if isinstance(call, dialects.Refusal):
            self.refuse(kinds.ARGUMENTS, Error(b"ERR " + call.text))
            return
        if call.code in _MAKING:
            if not self._admit_any_put():
                return
        elif call.code == q.POP:
            self.is_worker = True
            if self._clients.leaving:
                # The node is stopping and hands out no jobs; it closes this connection when idle.
                self.say(answers.answer(script, call, _NO_JOBS))
                return
        asked = Asked(script, call, None, _owed_bytes(call.code, call.args))
        self._submit(asked, call.code, call.flavour, call.now, call.args)

    # --- imports --------------------------------------------------------------------------------

    def import_one(self, arguments: list[bytes]) -> None:
        """BEANPOLE.IMPORT kind packed: an object of another server, see `beanpole.qless`."""
        if not self._admit_read(arguments, partial(self.import_one, arguments)):
            return
        code = _IMPORTS.get(arguments[1].lower())
        packed = operations.unpacked(arguments[2])
        if code is None or packed is None or len(packed) != 2 or not is_number(packed[0]):
            self.refuse(kinds.ARGUMENTS, BAD_IMPORT)
            return
        now, args = packed
        wrong = CALLS[code].shape.refusal(args)
        if wrong is not None:
            self.refuse(q.REFUSALS[wrong[0]], _import_refused(wrong))
        elif code == q.IMPORT_JOB and not views.are_logged(args[HISTORY]):
            self.refuse(kinds.ARGUMENTS, BAD_IMPORT)
        elif self._admit_any_put():
            self._submit(Asked(None, None, _imported, 0), code, q.THROTTLES, now, args)

    # --- commands that are not scripts ----------------------------------------------------------

    def zscore(self, arguments: list[bytes]) -> None:
        """ZSCORE ql:q:QUEUE-recur jid: the time at which a template makes its next job."""
        found = _match_recurring(arguments[1])
        if found is None:
            self.say(OTHER_KEY)
        else:
            self._ask(q.RECUR_SCORE, (found[1], arguments[2]), _score)

    def keys(self, arguments: list[bytes]) -> None:
        """KEYS pattern."""
        pattern = arguments[1]
        if len(pattern) > PATTERN_MAX_BYTES:
            self.say(LONG_PATTERN)
            return
        fits = Pattern(pattern).fits(Text(ANYTHING))
        self._ask(q.KEYS, (), _any_key if fits else _no_key)

    def dbsize(self, arguments: list[bytes]) -> None:
        """DBSIZE."""
        self._ask(q.KEYS, (), _key_count)

    def _ask(
        self, code: int, arguments: tuple[Any, ...], formatter: Callable[[q.Result], Value]
    ) -> None:
        asked = Asked(None, None, formatter, _owed_bytes(code, arguments))
        self._submit(asked, code, q.UNIFIED, 0.0, arguments)

    # --- commands and results -------------------------------------------------------------------

    def _submit(
        self, asked: Asked, code: int, flavour: int, now: float, arguments: tuple[Any, ...]
    ) -> None:
        clients = self._clients
        command = operations.command(self._session(), code, flavour, now, arguments)
        if not operations.fits(command):
            self.refuse(q.REFUSALS[q.TOO_MUCH], TOO_LARGE)
            return
        size = len(command[-1])
        if code in _MAKING or size >= HELD_BYTES_MIN:
            refused = self._refusal(code, flavour, now, arguments, size)
            if refused is not None:
                again = partial(self._submit, asked, code, flavour, now, arguments)
                if not self._hold_request(size, again):
                    self._shared.calls[code] += 1
                    self._replies.reply(self._reply_to(asked, refused))
                return
        self._shared.calls[code] += 1
        self._replies.expect(KIND_CALL)
        if asked.owed_bytes:
            self._replies.owe(asked.owed_bytes)
        self._asked.append(asked)
        cost = cost_of(clients.machine.qless, code, now, arguments)
        if cost > LIGHT_MAX:
            asked.is_heavy = self.blocked = True
            kind = KIND_FLUSH if code == q.FLUSH else KIND_CALL
            clients.origin.heavy.submit(self, kind, command, clients.loop_us)
        else:
            clients.origin.charge(clients.origin.submit(self, KIND_CALL, command), cost)

    def _refusal(
        self, code: int, flavour: int, now: float, arguments: tuple[Any, ...], size: int
    ) -> q.Result | None:
        """Return why a call is in vain, as far as this node knows; None if it may not be."""
        machine = self._clients.machine
        if not self._may(code, arguments):
            return q.DENIED, ()
        if size < HELD_BYTES_MIN:
            return None
        return operations.refusal_by_job(machine, code, flavour, now, arguments, size)

    def _may(self, code: int, arguments: tuple[Any, ...]) -> bool:
        """Whether the user has the right for a call, as far as this node knows."""
        machine = self._clients.machine
        users = machine.users
        return not users.rows or user_may(
            machine.qless, users.of(self.user, self.token), code, arguments
        )

    def _refuse_put(self, reason: int) -> None:
        self.refuse(*_PUT_REFUSALS[reason])

    def _called(self, result: Any) -> None:
        """Answer the oldest call with its result."""
        asked = self._asked.popleft()
        reply = self._reply_to(asked, result)
        if asked.owed_bytes:
            self._replies.owe(len(reply) - asked.owed_bytes)
        self._answer_asked(asked, reply)

    def _reply_to(self, asked: Asked, result: q.Result) -> bytes:
        """Return the reply to a call, and count its refusal."""
        if result[0] != q.OK:
            self._shared.errors[q.REFUSALS[result[0]]] += 1
        is_denied = result[0] == q.DENIED
        return encode(self._deny() if is_denied else asked.value(result), self.version)

    def _deny(self) -> Error:
        """Count a refusal for a missing right, and return its error."""
        self._clients.refused_client(NO_RIGHT if self.user else NO_TOKEN)
        return NO_PERMISSION if self.user else NO_AUTH

    def _not_called(self) -> None:
        """Answer the oldest call as not done: it certainly is not, and never will be."""
        asked = self._asked.popleft()
        if asked.owed_bytes:
            self._replies.owe(-asked.owed_bytes)
        self._shared.errors[kinds.NO_MAJORITY] += 1
        self._answer_asked(asked, encode(NO_MAJORITY))

    def _answer_asked(self, asked: Asked, reply: bytes) -> None:
        if asked.is_heavy:
            self._answer_alone(reply)
        else:
            self._answer_call(reply)

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._asked.clear()


def _owed_bytes(code: int, arguments: tuple[Any, ...]) -> int:
    """Return the size that is owed for a call until its reply is made; see `ReplyQueue.owe`."""
    is_large = code in _LARGE or (code == q.QUEUE_COUNTS and arguments[0] is None)
    return q.DATA_MAX_BYTES if is_large else 0


# --- results of commands that are not scripts -----------------------------------------------------


def refused(result: q.Result) -> Error:
    """Return the reply to a refused command that is not a script."""
    if result[0] == q.TOO_MUCH:
        name, most = result[1]
        return Error(b"ERR nothing was done: %b: %d at most" % (name, most))
    return NO_ROOM


def _imported(result: q.Result) -> Value:
    return int(result[1]) if result[0] == q.OK else _import_refused(result)


def _import_refused(result: q.Result) -> Error:
    if result[0] in (q.TOO_MUCH, q.NO_ROOM):
        return refused(result)
    return ITSELF if result[0] == q.DEPENDS_ON_ITSELF else BAD_IMPORT


def _score(result: q.Result) -> Value:
    if result[0] != q.OK:
        return refused(result)
    return None if result[1] is None else Double(result[1])


def _any_key(result: q.Result) -> Value:
    if result[0] != q.OK:
        return refused(result)
    return [ANYTHING] if result[1] else []


def _no_key(result: q.Result) -> Value:
    return [] if result[0] == q.OK else refused(result)


def _key_count(result: q.Result) -> Value:
    return int(result[1]) if result[0] == q.OK else refused(result)
