"""A double of the toxiproxy server, for machines without one: the same HTTP API, our own proxies.

`python -m chaos.toxiproxy_double [-host H] [-port P]` has the flags of the real server, so that it
can be started in its place; reports name it as a double. Statuses, headers, fields and words are
those of a recorded session with a real server 2.12, except for the words after `bad request
body:`, which come from Go's JSON package and change with it. `double_links` implements the toxics.
"""

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from chaos.double_links import ATTRIBUTES, DOWNSTREAM, STREAMS, Proxy, Toxic

VERSION: Final = "double"
CALL_TIMEOUT_S: Final = 10.0
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
# Browsers are rejected, because web pages could request any proxy.
BROWSERS: Final = "Mozilla/"

POPULATE: Final = "/populate"
VERSION_PATH: Final = "/version"
NO_PAGE: Final = "404 page not found"
ANY_PORT: Final = "127.0.0.1:0"

Answer = tuple[int, object]


class Refused(Exception):
    """The request is rejected with this status and message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Double:
    """All proxies. Its methods run in the event loop."""

    def __init__(self) -> None:
        self.proxies: dict[str, Proxy] = {}

    async def answer(self, method: str, path: str, data: bytes) -> Answer:
        """Return status and JSON of a request; raise Refused if it is rejected."""
        for pattern, methods in ROUTES.items():
            if found := re.fullmatch(pattern, path):
                act = methods.get(method)
                if act is None:
                    raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "")
                return await act(self, _parse(data, path), *found.groups())
        raise Refused(HTTPStatus.NOT_FOUND, NO_PAGE)

    async def version(self, _: dict[str, Any]) -> Answer:
        return HTTPStatus.OK, {"version": VERSION}

    async def list_all(self, _: dict[str, Any]) -> Answer:
        return HTTPStatus.OK, {
            name: proxy.as_json() for name, proxy in sorted(self.proxies.items())
        }

    async def create(self, body: dict[str, Any]) -> Answer:
        self._require(body)
        if body["name"] in self.proxies:
            raise Refused(HTTPStatus.CONFLICT, "proxy already exists")
        return HTTPStatus.CREATED, (await self._add(body)).as_json()

    async def populate(self, bodies: list[dict[str, Any]]) -> Answer:
        """Create several proxies; an identical one stays, a different one is replaced."""
        for number, body in enumerate(bodies, 1):
            self._require(body, f" at proxy {number}")
        made = []
        for body in bodies:
            found = self.proxies.get(body["name"])
            if found is None or found.differs(body.get("listen") or ANY_PORT, body["upstream"]):
                if found:
                    await found.stop()
                found = await self._add(body)
            made.append(found.as_json())
        return HTTPStatus.CREATED, {"proxies": made}

    @staticmethod
    def _require(body: dict[str, Any], where: str = "") -> None:
        for field in ("name", "upstream"):
            if not body.get(field):
                raise Refused(HTTPStatus.BAD_REQUEST, f"missing required field: {field}{where}")

    async def _add(self, body: dict[str, Any]) -> Proxy:
        proxy = Proxy(body["name"], body.get("listen") or ANY_PORT, body["upstream"])
        if body.get("enabled", True):
            await self._start(proxy)
        self.proxies[proxy.name] = proxy
        return proxy

    async def show(self, _: dict[str, Any], name: str) -> Answer:
        return HTTPStatus.OK, self._proxy(name).as_json()

    async def update(self, body: dict[str, Any], name: str) -> Answer:
        proxy = self._proxy(name)
        place = body.get("listen", proxy.listen), body.get("upstream", proxy.upstream)
        enabled = body.get("enabled", proxy.enabled)
        if proxy.enabled and (not enabled or proxy.differs(*place)):
            await proxy.stop()
        proxy.listen, proxy.upstream = place
        if enabled and not proxy.enabled:
            await self._start(proxy)
        return HTTPStatus.OK, proxy.as_json()

    async def delete(self, _: dict[str, Any], name: str) -> Answer:
        await self._proxy(name).stop()
        del self.proxies[name]
        return HTTPStatus.NO_CONTENT, None

    async def reset(self, _: dict[str, Any]) -> Answer:
        for proxy in self.proxies.values():
            for toxic in list(proxy.toxics):
                proxy.remove(toxic)
            if not proxy.enabled:
                await self._start(proxy)
        return HTTPStatus.NO_CONTENT, None

    async def toxics(self, _: dict[str, Any], name: str) -> Answer:
        return HTTPStatus.OK, self._proxy(name).toxics_as_json()

    async def add_toxic(self, body: dict[str, Any], name: str) -> Answer:
        proxy, kind = self._proxy(name), body.get("type", "")
        stream = str(body.get("stream") or DOWNSTREAM)
        if stream.lower() not in STREAMS:
            words = "stream was invalid, can be either upstream or downstream"
            raise Refused(HTTPStatus.BAD_REQUEST, words)
        if kind not in ATTRIBUTES:
            raise Refused(HTTPStatus.BAD_REQUEST, "invalid toxic type")
        own = body.get("name") or f"{kind}_{stream}"
        if any(toxic.name == own for toxic in proxy.toxics):
            raise Refused(HTTPStatus.CONFLICT, "toxic already exists")
        toxic = Toxic(own, kind, stream)
        self._set(toxic, body)
        proxy.toxics.append(toxic)
        proxy.change()
        return HTTPStatus.OK, toxic.as_json()

    async def show_toxic(self, _: dict[str, Any], name: str, own: str) -> Answer:
        return HTTPStatus.OK, self._toxic(name, own).as_json()

    async def update_toxic(self, body: dict[str, Any], name: str, own: str) -> Answer:
        toxic = self._toxic(name, own)
        self._set(toxic, body)
        self._proxy(name).change()
        return HTTPStatus.OK, toxic.as_json()

    async def delete_toxic(self, _: dict[str, Any], name: str, own: str) -> Answer:
        self._proxy(name).remove(self._toxic(name, own))
        return HTTPStatus.NO_CONTENT, None

    def _proxy(self, name: str) -> Proxy:
        if name not in self.proxies:
            raise Refused(HTTPStatus.NOT_FOUND, "proxy not found")
        return self.proxies[name]

    def _toxic(self, name: str, own: str) -> Toxic:
        for toxic in self._proxy(name).toxics:
            if toxic.name == own:
                return toxic
        raise Refused(HTTPStatus.NOT_FOUND, "toxic not found")

    @staticmethod
    def _set(toxic: Toxic, body: dict[str, Any]) -> None:
        toxicity = body.get("toxicity", toxic.toxicity)
        if type(toxicity) not in (int, float):
            raise bad_body("the toxicity is no number")
        given = body.get("attributes") or {}
        for key, value in given.items():
            if type(value) is not int:
                raise bad_body(f"{key} is no integer")
        toxic.toxicity = toxicity
        toxic.attributes.update({key: given[key] for key in toxic.attributes if key in given})

    @staticmethod
    async def _start(proxy: Proxy) -> None:
        try:
            await proxy.start()
        except OSError as error:
            words = f"listen tcp {proxy.listen}: bind: {os.strerror(error.errno or 0).lower()}"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, words) from None
        except ValueError:
            port = proxy.listen.rpartition(":")[2]
            words = f"listen tcp: lookup tcp/{port}: unknown port"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, words) from None


Act = Callable[..., Coroutine[Any, Any, Answer]]
ROUTES: Final[dict[str, dict[str, Act]]] = {
    VERSION_PATH: {"GET": Double.version},
    "/proxies": {"GET": Double.list_all, "POST": Double.create},
    POPULATE: {"POST": Double.populate},
    "/reset": {"POST": Double.reset},
    "/proxies/([^/]+)": {
        "GET": Double.show,
        "POST": Double.update,
        "PATCH": Double.update,
        "DELETE": Double.delete,
    },
    "/proxies/([^/]+)/toxics": {"GET": Double.toxics, "POST": Double.add_toxic},
    "/proxies/([^/]+)/toxics/([^/]+)": {
        "GET": Double.show_toxic,
        "POST": Double.update_toxic,
        "PATCH": Double.update_toxic,
        "DELETE": Double.delete_toxic,
    },
}


def handler(double: Double, loop: asyncio.AbstractEventLoop) -> type[BaseHTTPRequestHandler]:
    """Return the class that handles requests in threads, through the event loop."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                if self.headers.get("User-Agent", "").startswith(BROWSERS):
                    raise Refused(HTTPStatus.FORBIDDEN, "User agent not allowed")
                asked = double.answer(self.command, self.path, data)
                status, found = asyncio.run_coroutine_threadsafe(asked, loop).result(CALL_TIMEOUT_S)
                kind, text = _success(found, self.path)
            except Refused as refused:
                status, (kind, text) = refused.status, _refusal(refused, self.path)
            self.send_response(status)
            if text:
                self.send_header("Content-Type", kind)
            if status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Log no requests."""

    return Handler


def _parse(data: bytes, path: str) -> Any:
    """Return the body of a request: an object, or a list of them at /populate."""
    if not data:
        return [] if path == POPULATE else {}
    try:
        body = json.loads(data)
    except ValueError as error:
        raise bad_body(str(error)) from None
    objects = body if path == POPULATE else [body]
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        raise bad_body("of the wrong type")
    return body


def bad_body(words: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, f"bad request body: {words}")


def _success(found: object, path: str) -> tuple[str, str]:
    """Return content type and text of an answer; the version has a format of its own."""
    if path == VERSION_PATH:
        return f"{JSON};charset=utf-8", json.dumps(found) + "\n"
    return JSON, "" if found is None else _compact(found)


def _refusal(refused: Refused, path: str) -> tuple[str, str]:
    """Return content type and text of a rejected request."""
    words, status = str(refused), refused.status
    if status in (HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED) or words == NO_PAGE:
        return TEXT, f"{words}\n" if words else ""
    told: dict[str, object] = {"error": words, "status": int(status)}
    if path == POPULATE:
        return JSON, _compact({**told, "proxies": None})
    return TEXT, _compact(told) + "\n"


def _compact(found: object) -> str:
    return json.dumps(found, separators=(",", ":"))


async def serve(host: str, port: int) -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    server = ThreadingHTTPServer((host, port), handler(Double(), loop))
    print(f"double of toxiproxy at {host}:{server.server_address[1]}", flush=True)
    await asyncio.to_thread(server.serve_forever)


def main() -> int:
    """Run the server."""
    parser = argparse.ArgumentParser(prog="python -m chaos.toxiproxy_double", description=__doc__)
    parser.add_argument("-host", default="127.0.0.1")
    parser.add_argument("-port", type=int, default=8474)
    options = parser.parse_args()
    asyncio.run(serve(options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
