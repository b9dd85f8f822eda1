"""The calls of gRPC that are recorded in the audit log: one table, one interceptor.

The files are in `beanpoled.audit`. Commands of Gearman's and qless's administrators are recorded by
their connections.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf import text_format
from google.protobuf.message import Message

from beanpole.addresses import host_of_peer
from beanpole.core.users import RIGHTS_MAX, RULES_MAX
from beanpoled.audit.entry import TEXT_MAX_CHARS, Entry, Value, cut
from beanpoled.rpc.caller import CALLER, NAMES_KEY
from beanpoled.rpc.server import Behavior, Context, around

# Of a list of numbers, such as ids of jobs, the first ones and the count are recorded.
ITEMS_MAX: Final = 20
# Of a list of messages, which are rights and rules: all that a call which takes effect may have.
MESSAGES_MAX: Final = max(RIGHTS_MAX, RULES_MAX)
# The limit of a message in a list; longer ones are not formatted, which the event loop does.
ITEM_BYTES_MAX: Final = 2048
# The limits of the values of a repeated enum that are looked at, and of a message in a list that is
# copied: a request of 5 MiB, which may come from anybody, has millions of values, and the event
# loop would take 0.2 s for them.
ENUMS_LOOKED_MAX: Final = 4096
COPIED_BYTES_MAX: Final = 16 * 1024
# The limit of such a message in JSON: all of them together fit into a line.
_ITEM_JSON_MAX: Final = 900
# The limits of a text in a message above one of the limits. Fields behind it are shown then, too:
# the user of a rule with a long name of a certificate, rights in a queue with a long name.
_PLAIN_MAX_CHARS: Final = 80
_ODD_MAX_CHARS: Final = 20  # of characters of which JSON or protobuf makes up to twelve bytes
_ESCAPED: Final = frozenset("\"'\\")
_PREFIX: Final = "/beanpole.v1."
_CERTIFICATE_KEYS: Final = (NAMES_KEY, "x509_common_name")


class Row(NamedTuple):
    """A recorded method.

    Attributes:
        shown: the arguments to record.
        reads: whether it only reads.
        proves: whether its callers prove that they are members, which the method itself checks.
    """

    shown: tuple[str, ...] = ()
    reads: bool = False
    proves: bool = False


_FILTER: Final = tuple(
    f"filter.{name}"
    for name in ("queue", "states", "body_contains", "age_min_us", "age_max_us", "protocol")
)
# Of bytes, only the size is recorded.
AUDITED: Final = {
    "Admin/TransferLeader": Row(("to", "at_leader")),
    "Admin/TakeSnapshot": Row(),
    "Admin/Finalize": Row(("to", "at_leader")),
    "Admin/ListConnections": Row(("node",), reads=True),
    "Admin/CloseConnection": Row(("node", "id", "at_node")),
    "Backup/Take": Row(),
    "Events/ReadEvents": Row(("start", "end"), reads=True),
    "JobAdmin/PauseQueue": Row(("queue", "seconds")),
    "JobAdmin/ListJobs": Row((*_FILTER, "after_id", "limit", "body_bytes"), reads=True),
    "JobAdmin/GetJob": Row(("id",), reads=True),
    "JobAdmin/Change": Row(
        (
            *("action", "job_ids", *_FILTER, "to_queue", "moved_state", "priority", "delay_s"),
            *("dry_run", "count_max", "reserved", "after_id", "up_to_id"),
        )
    ),
    "NodeAdmin/ListSettings": Row(("node",), reads=True),
    "NodeAdmin/Reload": Row(("node", "at_node")),
    "NodeAdmin/ReadAudit": Row(("node", "after_id", "last_us"), reads=True),
    "Peer/FetchSnapshot": Row(("index",), proves=True),
    "Policies/Set": Row(("policy",)),
    "Policies/Drop": Row(("pattern",)),
    "Queue/Kick": Row(("job_ids",)),
    "Queue/SetAlias": Row(("alias", "queue")),
    "Users/Set": Row(("name", "rights", "limits")),
    "Users/Drop": Row(("name",)),
    "Users/AddToken": Row(("user",)),
    "Users/DropToken": Row(("user", "token_id")),
    "Users/SetRules": Row(("rules",)),
}
# The reason why a method is not recorded.
_NUMBERS: Final = "it shows names and numbers, no jobs"
NOT_AUDITED: Final = {
    "Admin/Status": _NUMBERS,
    "Events/EventRange": _NUMBERS,
    "NodeAdmin/Examine": _NUMBERS,
    "JobAdmin/ListQueues": _NUMBERS,
    "Live/Read": _NUMBERS,
    "Peer/Challenge": "it is the first half of another call",
    "Peer/NodeInfo": _NUMBERS,
    "Policies/List": _NUMBERS,
    "Queue/ListAliases": _NUMBERS,
    "Users/List": _NUMBERS,
    "Users/ListRules": _NUMBERS,
    "Users/WhoAmI": _NUMBERS,
    "Queue/Put": "it is the work of a producer, as puts by the other protocols; events tell of it",
}


class Auditor(grpc.aio.ServerInterceptor):
    """Records calls when they have ended."""

    def __init__(
        self, add: Callable[[Entry], None], user_of: Callable[[Context], str] = lambda _: ""
    ) -> None:
        """Begin without records.

        Args:
            add: takes an entry; must not block.
            user_of: returns the user of a caller.
        """
        self._add = add
        self._user_of = user_of

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """See `ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method.removeprefix(_PREFIX)
        row = AUDITED.get(method)
        if handler is None or row is None:
            return handler
        return around(handler, lambda behavior: self._watched(behavior, method, row))

    def _watched(self, behavior: Behavior, method: str, row: Row) -> Behavior:
        async def watched(request: Message, context: Context) -> Any:
            wall_us, begun_s = time.time_ns() // 1000, time.monotonic()
            outcome = "UNKNOWN"
            try:
                reply = await behavior(request, context)
                outcome = "OK"
                return reply
            except asyncio.CancelledError:
                outcome = "CANCELLED"
                raise
            except BaseException:
                outcome = _code(context)
                raise
            finally:
                duration_us = int((time.monotonic() - begun_s) * 1e6)
                certificate, user = _certificate(context), self._user_of(context)
                caller = host_of_peer(context.peer()).decode(errors="replace")
                shown = arguments(request, row)
                whom = (caller, certificate, user, method)
                unproved = row.proves and outcome == "UNAUTHENTICATED"
                refused = unproved or not CALLER.get().passed
                entry = Entry(wall_us, *whom, shown, outcome, duration_us)
                self._add(entry._replace(reads=row.reads, refused=refused))

        return watched


def _code(context: Context) -> str:
    """Return the status of a call that raised."""
    code: Any = context.code()
    if isinstance(code, int):
        code = next((one for one in grpc.StatusCode if one.value[0] == code), None)
    return code.name if code else "UNKNOWN"


def _certificate(context: Context) -> str:
    """Return the caller's name in its certificate."""
    shown = context.auth_context()
    for key in _CERTIFICATE_KEYS:
        for name in shown.get(key, ()):
            return bytes(name).decode(errors="replace")
    return ""


def arguments(request: Message, row: Row) -> dict[str, Value]:
    """Return the recorded arguments of a request, without those that are not set."""
    found: dict[str, Value] = {}
    for path in row.shown:
        message, name = request, path
        while "." in name:
            outer, _, name = name.partition(".")
            message = getattr(message, outer)
        field = message.DESCRIPTOR.fields_by_name[name]
        value = getattr(message, name)
        if field.message_type is None:
            _show(found, path, field, value)
        elif field.is_repeated:
            _show_messages(found, path, value)
        else:
            for inner, inside in value.ListFields():
                _show(found, f"{path}.{inner.name}", inner, inside)
    return found


def _show_messages(found: dict[str, Value], path: str, value: Any) -> None:
    if value:
        found[path] = [_line(item) for item in value[:MESSAGES_MAX]]
    if len(value) > MESSAGES_MAX:
        found[f"{path}.count"] = len(value)


def _line(message: Message) -> str:
    size = message.ByteSize()
    if size > COPIED_BYTES_MAX:
        return f"{size} bytes"
    # Repeated rights would displace those behind them.
    shown = _copy(message, {})
    size = shown.ByteSize()
    if size > ITEM_BYTES_MAX:
        return f"{size} bytes"
    text = text_format.MessageToString(shown, as_one_line=True)
    if len(text) > TEXT_MAX_CHARS or len(json.dumps(text)) > _ITEM_JSON_MAX:
        texts = {
            field.name: _short(value)
            for field, value in shown.ListFields()
            if isinstance(value, str)
        }
        text = text_format.MessageToString(_copy(shown, texts), as_one_line=True)
    return cut(text)


def _copy(message: Message, texts: Mapping[str, str]) -> Message:
    """Copy a message, with each value of a repeated enum once.

    Args:
        message: the message.
        texts: replacements of its texts, by the names of the fields.
    """
    made = type(message)()
    made.CopyFrom(message)
    for field, value in message.ListFields():
        if field.is_repeated and field.enum_type is not None:
            made.ClearField(field.name)
            getattr(made, field.name).extend(dict.fromkeys(value))
    for name, text in texts.items():
        setattr(made, name, text)
    return made


def _short(text: str) -> str:
    is_plain = text.isascii() and text.isprintable() and not _ESCAPED.intersection(text)
    room = _PLAIN_MAX_CHARS if is_plain else _ODD_MAX_CHARS
    return text[:room] + "..." if len(text) > room else text


def _show(found: dict[str, Value], path: str, field: Any, value: Any) -> None:
    if not value or field.message_type is not None:
        return
    if not field.is_repeated:
        found[path] = _plain(field, value)
        return
    if field.enum_type is not None:
        # Repeated ones would displace those behind them.
        value = list(dict.fromkeys(islice(value, ENUMS_LOOKED_MAX)))
    found[path] = [_plain(field, item) for item in value[:ITEMS_MAX]]
    if len(value) > ITEMS_MAX:
        found[f"{path}.count"] = len(value)


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        # Enums are open: a client may send a number that has no name here.
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return cut(value) if isinstance(value, str) else value
