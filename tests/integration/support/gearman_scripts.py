"""Scripts of Gearman clients: their format, their player, and the normalisation of replies.

A script is a text file; one step is one line:

    A SUBMIT_JOB f u data     client A (opened when first named) sends a packet; `_` is an empty
                              argument, {1} the first handle that the script has seen
    A raw BYTES               sends bytes, such as packets of another kind
    A text status             sends a line of text
    A got                     everything that came to A until all steps above have had their effect:
                              packets and lines; unasked ones come after the answers
    A lose                    breaks the connection
    wait 1.2                  lets seconds pass
    ~ NAME REPLY              a reply of Beanpole to the `got` above, in place of all of gearmand's;
                              docs/protocols/gearman.md has the reason under that name

Backslash escapes are Python's; `#` begins a comment line. Reading scripts and transcripts is in
`scripts`; test_gearman_scripts decides which servers they are played against.
"""

import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from tests.integration.support.raw import Address, connect
from tests.integration.support.scripts import Step, unescape
from tests.integration.support.waiting import wait_for_time, wait_until

FOLDER: Final = Path(__file__).resolve().parents[2] / "scripts" / "gearman"
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "gearman.md"
REPLY_TIMEOUT_S: Final = 60.0
END: Final = b"(end)"
NOTHING: Final = b"(nothing)"

_STEP: Final = re.compile(r"([A-Z]) (\w+)(?: (.*))?")
_HANDLE: Final = re.compile(rb"H:(?!nobody)[^:\0\t\n ]+:[0-9]+")
_FENCE: Final = b"\xfffence"
_NAMES_OF_REPLIES: Final = {
    value: name.encode()
    for name, value in vars(p).items()
    if type(value) is int and value in p.REPLY_ARGUMENTS and not name.endswith("_MAX")
}
# Packets that a server sends unasked.
_UNASKED: Final = (
    *(p.NOOP, p.WORK_STATUS, p.WORK_COMPLETE, p.WORK_FAIL, p.WORK_EXCEPTION),
    *(p.WORK_DATA, p.WORK_WARNING),
)
_PID: Final = re.compile(rb"OK [0-9]+\n")
_VERSION: Final = re.compile(rb"OK [0-9]+\.[0-9]+\.[0-9]+\S*\n")

# A packet's type and body, or 0 and a line; -1 is the end of the connection.
Item = tuple[int, bytes]


def deviations() -> set[str]:
    """Return the names of the deviations that the page gives reasons for."""
    return set(
        re.findall(r"^\| `([a-z0-9-]+)` \| [A-Z`].* \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    )


class Stream:
    """One connection, whose replies may be packets and lines."""

    def __init__(self, address: Address) -> None:
        self._stream = connect(address, REPLY_TIMEOUT_S)
        self._data = b""
        self.items: list[Item] = []
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send bytes; `fence` notices a server that has closed."""
        try:
            self._stream.sendall(data)
        except (ConnectionError, BrokenPipeError):
            self.ended = True

    def close(self) -> None:
        self._stream.close()

    def half_close(self) -> None:
        self._stream.shutdown(socket.SHUT_WR)

    def fence(self) -> None:
        """Receive everything that was sent before now."""
        if self.ended and (-1, b"") in self.items:
            return
        self.send(request(p.ECHO_REQ, _FENCE))
        while (item := self._item()) != (p.ECHO_RES, _FENCE):
            self.items.append(item)
            if item[0] < 0:
                self.ended = True
                return

    def lines(self, line: bytes) -> list[bytes]:
        """Send a line and receive the rows of a list."""
        self.send(line)
        rows = []
        while (item := self._item()) != (0, b".\n"):
            assert item[0] == 0, item
            rows.append(item[1])
        return rows

    def _item(self) -> Item:
        while True:
            if self._data[:1] == b"\0":
                if len(self._data) >= p.HEADER_BYTES:
                    _, kind, size = p.HEADER.unpack_from(self._data)
                    end = p.HEADER_BYTES + size
                    if len(self._data) >= end:
                        body, self._data = self._data[p.HEADER_BYTES : end], self._data[end:]
                        return kind, body
            elif b"\n" in self._data:
                line, _, self._data = self._data.partition(b"\n")
                return 0, line + b"\n"
            try:
                data = self._stream.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                return -1, b""
            self._data += data


class GearmanPlayer:
    """Plays steps against one server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clients: dict[str, Stream] = {}
        self._admin = Stream(address)
        self._handles: list[bytes] = []

    def play(self, step: Step) -> list[bytes]:
        """Do one step and return the normalised replies that it read."""
        if step.line.startswith("wait "):
            wait_for_time(float(step.line[5:]))
            return []
        found = _STEP.fullmatch(step.line)
        assert found, f"not a step: {step.line!r}"
        client = self._clients.get(found[1])
        if client is None:
            client = self._clients[found[1]] = Stream(self._address)
        verb, rest = found[2], unescape(found[3] or "")
        if verb == "got":
            self._settle()
            items, client.items = client.items, []
            return self._normalised(items)
        if verb == "lose":
            self._settle()
            self._clients.pop(found[1]).close()
            wait_until(self._is_lost, REPLY_TIMEOUT_S, "the end of a connection")
        elif verb == "raw":
            client.send(self._with_handles(rest))
        elif verb == "text":
            client.send(self._with_handles(rest) + b"\n")
        else:
            words = [b"" if word == b"_" else self._with_handles(word) for word in _words(rest)]
            client.send(request(getattr(p, verb), *words))
        return []

    def _is_lost(self) -> bool:
        """Whether the server has no other connections than the open ones and this one."""
        return len(self._admin.lines(b"workers\n")) <= len(self._clients) + 1

    def close(self) -> None:
        """Break the connections, and drop the functions that a shared server would keep."""
        for client in self._clients.values():
            client.close()

        def none_left() -> bool:
            names = [row.split(b"\t")[0] for row in self._admin.lines(b"status\n")]
            for name in names:
                self._admin.send(b"drop function %b\r\n" % name)
                self._admin.fence()
            return not names

        wait_until(none_left, REPLY_TIMEOUT_S, "no function is left")
        self._admin.close()

    def _settle(self) -> None:
        """Wait until everything that was sent has had its effect, and receive it.

        Each client's echo shows that the server has read what came before; the list of functions
        shows that it is done; the second echo comes after the resulting packets.
        """
        for client in self._clients.values():
            client.fence()
        self._admin.lines(b"status\n")
        for client in self._clients.values():
            client.fence()

    def _with_handles(self, data: bytes) -> bytes:
        for number, handle in enumerate(self._handles, 1):
            data = data.replace(b"{%d}" % number, handle)
        return data

    def _normalised(self, items: list[Item]) -> list[bytes]:
        """Return replies without what differs between two runs of the same server."""
        asked = [item for item in items if item[0] not in _UNASKED]
        asked += [item for item in items if item[0] in _UNASKED]
        replies = []
        rows: list[bytes] = []
        for kind, body in asked:
            if kind < 0:
                replies.append(END)
            elif kind:
                replies.append(self._numbered(_NAMES_OF_REPLIES[kind] + b" " + body))
            elif body == b".\n":
                replies.append(b"".join(sorted(self._rows(rows))) + body)
                rows = []
            elif body.startswith((b"OK", b"ERR")):
                replies.append(_VERSION.sub(b"OK *\n", _PID.sub(b"OK *\n", body)))
            else:
                rows.append(body)
        assert not rows, rows
        return replies or [NOTHING]

    def _rows(self, rows: Iterable[bytes]) -> Iterable[bytes]:
        """Yield the rows of a list; of connections only those that have named themselves."""
        for row in rows:
            if found := re.fullmatch(rb"[0-9]+ (127\.0\.0\.1 .* ?:.*\n)", row):
                if not found[1].endswith(b" - :\n"):
                    yield b"* " + found[1]
            else:
                yield self._numbered(row)

    def _numbered(self, data: bytes) -> bytes:
        """Replace each handle by its number in this script."""

        def number(found: re.Match[bytes]) -> bytes:
            if found[0] not in self._handles:
                self._handles.append(found[0])
            return b"{%d}" % (self._handles.index(found[0]) + 1)

        return _HANDLE.sub(number, data)


def _words(rest: bytes) -> list[bytes]:
    return rest.split(b" ") if rest else []
