"""A double of the toxiproxy server, for machines that have none: the same HTTP API, our proxies.

`python -m chaos.toxiproxy_double [-host H] [-port P]` has the flags of the real one, so that either
can be started in its place. It is a double and reports say so: what a toxic does to bytes is in
`double_links`, written after the documentation, not after the code, of toxiproxy 2.x.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from chaos.double_links import ATTRIBUTES, DOWNSTREAM, STREAMS, Proxy, Toxic

VERSION: Final = "double"
CALL_TIMEOUT_S: Final = 10.0

Answer = tuple[int, object]


class Refused(Exception):
    """The request is answered with this status and these words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Double:
    """All proxies. Its methods run in the loop."""

    def __init__(self) -> None:
        self.proxies: dict[str, Proxy] = {}

    async def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        """Return status and JSON of a request; Refused if it cannot be done."""
        for pattern, methods in ROUTES.items():
            if found := re.fullmatch(pattern, path):
                act = methods.get("POST" if method == "PATCH" else method)
                if act is None:
                    raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "")
                return await act(self, body, *found.groups())
        raise Refused(HTTPStatus.NOT_FOUND, "404 page not found")

    async def version(self, _: dict[str, Any]) -> Answer:
        return HTTPStatus.OK, {"version": VERSION}

    async def list_all(self, _: dict[str, Any]) -> Answer:
        return HTTPStatus.OK, {name: proxy.as_json() for name, proxy in self.proxies.items()}

    async def create(self, body: dict[str, Any]) -> Answer:
        for field in ("name", "upstream"):
            if not body.get(field):
                raise Refused(HTTPStatus.BAD_REQUEST, f"missing required field: {field}")
        if body["name"] in self.proxies:
            raise Refused(HTTPStatus.CONFLICT, "proxy already exists")
        proxy = Proxy(body["name"], body.get("listen") or "127.0.0.1:0", body["upstream"])
        if body.get("enabled", True):
            await self._start(proxy)
        self.proxies[proxy.name] = proxy
        return HTTPStatus.CREATED, proxy.as_json()

    async def show(self, _: dict[str, Any], name: str) -> Answer:
        return HTTPStatus.OK, self._proxy(name).as_json()

    async def update(self, body: dict[str, Any], name: str) -> Answer:
        proxy = self._proxy(name)
        place = body.get("listen", proxy.listen), body.get("upstream", proxy.upstream)
        enabled = body.get("enabled", proxy.enabled)
        if proxy.enabled and (not enabled or place != (proxy.listen, proxy.upstream)):
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
        return HTTPStatus.OK, [toxic.as_json() for toxic in self._proxy(name).toxics]

    async def add_toxic(self, body: dict[str, Any], name: str) -> Answer:
        proxy, kind = self._proxy(name), body.get("type", "")
        stream = str(body.get("stream") or DOWNSTREAM).lower()
        if stream not in STREAMS:
            words = "stream was invalid, can be either upstream or downstream"
            raise Refused(HTTPStatus.BAD_REQUEST, words)
        if kind not in ATTRIBUTES:
            raise Refused(HTTPStatus.BAD_REQUEST, "invalid toxic type")
        own = body.get("name") or f"{kind}_{stream}"
        if any(toxic.name == own for toxic in proxy.toxics):
            raise Refused(HTTPStatus.CONFLICT, "toxic already exists")
        toxic = Toxic(own, kind, stream, float(body.get("toxicity", 1.0)))
        self._set(toxic, body)
        proxy.toxics.append(toxic)
        proxy.change()
        return HTTPStatus.OK, toxic.as_json()

    async def show_toxic(self, _: dict[str, Any], name: str, own: str) -> Answer:
        return HTTPStatus.OK, self._toxic(name, own).as_json()

    async def update_toxic(self, body: dict[str, Any], name: str, own: str) -> Answer:
        toxic = self._toxic(name, own)
        self._set(toxic, body)
        toxic.toxicity = float(body.get("toxicity", toxic.toxicity))
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
        for key, value in (body.get("attributes") or {}).items():
            if not isinstance(value, int):
                raise Refused(HTTPStatus.BAD_REQUEST, f"bad request body: {key} is no integer")
            if key in toxic.attributes:
                toxic.attributes[key] = value

    @staticmethod
    async def _start(proxy: Proxy) -> None:
        try:
            await proxy.start()
        except OSError as error:
            words = f"listen tcp {proxy.listen}: {error.strerror}"
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, words) from None


Act = Callable[..., Coroutine[Any, Any, Answer]]
ROUTES: Final[dict[str, dict[str, Act]]] = {
    "/version": {"GET": Double.version},
    "/proxies": {"GET": Double.list_all, "POST": Double.create},
    "/reset": {"POST": Double.reset},
    "/proxies/([^/]+)": {"GET": Double.show, "POST": Double.update, "DELETE": Double.delete},
    "/proxies/([^/]+)/toxics": {"GET": Double.toxics, "POST": Double.add_toxic},
    "/proxies/([^/]+)/toxics/([^/]+)": {
        "GET": Double.show_toxic,
        "POST": Double.update_toxic,
        "DELETE": Double.delete_toxic,
    },
}


def handler(double: Double, loop: asyncio.AbstractEventLoop) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers requests in threads, by asking in the loop."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(data) if data else {}
                if not isinstance(body, dict):
                    raise Refused(HTTPStatus.BAD_REQUEST, "bad request body: no object")
                asked = double.answer(self.command, self.path, body)
                status, found = asyncio.run_coroutine_threadsafe(asked, loop).result(CALL_TIMEOUT_S)
            except ValueError as error:
                status, found = HTTPStatus.BAD_REQUEST, _error(400, f"bad request body: {error}")
            except Refused as refused:
                status, found = refused.status, _error(refused.status, str(refused))
            text = b"" if found is None else json.dumps(found).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status < 400 else "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each request."""

    return Handler


def _error(status: int, words: str) -> dict[str, object]:
    return {"error": words, "status": status}


async def serve(host: str, port: int) -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    server = ThreadingHTTPServer((host, port), handler(Double(), loop))
    print(f"double of toxiproxy at {host}:{server.server_address[1]}", flush=True)
    await asyncio.to_thread(server.serve_forever)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m chaos.toxiproxy_double", description=__doc__)
    parser.add_argument("-host", default="127.0.0.1")
    parser.add_argument("-port", type=int, default=8474)
    options = parser.parse_args()
    asyncio.run(serve(options.host, options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
