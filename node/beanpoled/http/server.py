"""The operators' HTTP port: /livez, /readyz, /metrics. HTTP/1.1, GET and HEAD, no bodies.

It offers only what a load balancer and a metrics collector need, and shows no secrets, because it
has no authentication. It is on the path of no command.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from beanpoled.host.sockets import bind
from beanpoled.http import metrics
from beanpoled.readiness import Check, liveness, readiness
from beanpoled.view import NodeView

# No probe or browser sends more than this before the empty line.
REQUEST_BYTES_MAX: Final = 8192
# A client that has not sent its request by then is closed; so is an idle kept-alive connection.
REQUEST_TIMEOUT_S: Final = 10.0
# Probes come from a few places; more connections than this are a mistake, and the oldest is closed:
# idle connections must not keep the probes out.
CONNECTIONS_MAX: Final = 64
# After a page of metrics, which takes the node's loop some 20 ms with 1,000 queues, the next one is
# made when this many times as much has passed; requests in that time wait for it.
METRICS_REST: Final = 9

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

_Answer = tuple[int, str, str]
_TEXT: Final = "text/plain; charset=utf-8"


class HttpServer:
    """Serves a node's health and metrics on one address."""

    def __init__(self, view: NodeView) -> None:
        self._view = view
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._page: asyncio.Task[str] | None = None  # of metrics, before it is made
        self._rest_until_s = 0.0  # loop time

    async def start(self, address: str) -> int:
        """Listen on "host:port" and return the port.

        Raises:
            OSError: the port is taken.
        """
        self._server = await asyncio.start_server(
            self._connected, sock=bind(address), limit=REQUEST_BYTES_MAX
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            if self._page is not None:
                self._page.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
        self._tasks[task] = None
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError) as error:
            # The client is gone or too slow, or the server stops: there is nothing to report. The
            # reader keeps the error, whose frames refer to the reader.
            error.with_traceback(None)
        finally:
            self._tasks.pop(task, None)
            _end(writer)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection may be used again."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _send(writer, _response((431, _TEXT, "request too large\n"), "GET", False))
            return False
        method, answer, again = await self._answer(head)
        await _send(writer, _response(answer, method, again))
        # Requests that have arrived together would be answered without a pause otherwise, and
        # block all other clients of the node.
        await asyncio.sleep(0)
        return again

    async def _answer(self, head: bytes) -> tuple[str, _Answer, bool]:
        """Return the method, the answer, and whether the connection stays open after it."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return "GET", (400, _TEXT, "bad request\n"), False
        method, target, version = words
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            return method, (505, _TEXT, "HTTP/1.1 is spoken here\n"), False
        headers: dict[str, str] = {}
        for line in lines[1:-2]:
            name, colon, value = line.partition(":")
            if not colon:
                return method, (400, _TEXT, "bad header\n"), False
            headers[name.lower()] = value.strip().lower()
        # A body would be parsed as the next request: such a connection is not used again.
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        options = [word.strip() for word in headers.get("connection", "").split(",")]
        kept = version == "HTTP/1.1" and "close" not in options and not has_body
        return method, await self._route(method, target), kept

    async def _route(self, method: str, target: str) -> _Answer:
        try:
            parts = urlsplit(target)
        except ValueError:
            return 400, _TEXT, "bad request\n"
        page = self._pages().get(parts.path)
        if page is None:
            return 404, _TEXT, "not found; there are /livez, /readyz and /metrics\n"
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, "only GET and HEAD\n"
        return await page(parse_qs(parts.query, keep_blank_values=True))

    def _pages(self) -> dict[str, Callable[[dict[str, list[str]]], Awaitable[_Answer]]]:
        return {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._metrics}

    async def _livez(self, _query: dict[str, list[str]]) -> _Answer:
        return _checks(liveness(self._view))

    async def _readyz(self, query: dict[str, list[str]]) -> _Answer:
        leader_only = query.get("leader", ["0"])[-1] not in ("0", "false")
        return _checks(readiness(self._view, leader_only))

    async def _metrics(self, _query: dict[str, list[str]]) -> _Answer:
        if self._page is None:
            self._page = asyncio.get_running_loop().create_task(self._make_page())
        # One of those that wait may leave.
        return 200, metrics.CONTENT_TYPE, await asyncio.shield(self._page)

    async def _make_page(self) -> str:
        """Return a page for all that asked before it is made."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._rest_until_s - loop.time())
        self._page = None
        begun_s = loop.time()
        page = metrics.render(self._view)
        ended_s = loop.time()
        self._rest_until_s = ended_s + METRICS_REST * (ended_s - begun_s)
        return page


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a response.

    Raises:
        ConnectionError: the client is gone. uvloop has a RuntimeError for a write to a socket that
            was reset while the answer was made, and an unexpected exception stops the node.
        TimeoutError: the client does not read.
    """
    if writer.transport.is_closing():
        raise ConnectionAbortedError("the client is gone")
    writer.write(data)
    async with asyncio.timeout(REQUEST_TIMEOUT_S):
        await writer.drain()


def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection, once the rest of its responses is sent or after REQUEST_TIMEOUT_S.

    A client that does not read would keep the connection and the rest for ever otherwise, after
    which CONNECTIONS_MAX no longer counts it.
    """
    transport = writer.transport
    if transport.is_closing():
        return
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, transport.abort)
    transport.close()


def _checks(checks: list[Check]) -> _Answer:
    """Answer 200 if all checks passed, else 503; one line for each."""
    lines = (f"[{'+' if check.passed else '-'}]{check.name}: {check.words}\n" for check in checks)
    return 200 if all(check.passed for check in checks) else 503, _TEXT, "".join(lines)


def _response(answer: _Answer, method: str, again: bool) -> bytes:
    status, kind, text = answer
    body = text.encode()
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if again else 'close'}",
    ]
    if status == 405:
        head.append("Allow: GET, HEAD")
    raw = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n"
    return raw if method == "HEAD" else raw + body
