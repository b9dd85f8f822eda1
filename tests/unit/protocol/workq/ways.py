"""Feed a Workq client's bytes to the parser in every way they may arrive, and compare."""

from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.parser import Parser
from beanpole.protocol.workq.requests import Request

JOB = b"6ba7b810-9dad-41d1-80b4-00c04fd430c4"
JOB_ID = bytes.fromhex("6ba7b8109dad41d180b400c04fd430c4")
OF_VERSION_1 = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"


def take(parser: Parser) -> list[Request]:
    """Return all requests that the parser has now."""
    requests = []
    while (request := parser.next()) is not None:
        requests.append(request)
    return requests


def parse_whole(stream: bytes) -> list[Request]:
    """Feed all at once."""
    parser = Parser()
    parser.feed(stream)
    return take(parser)


def parse_bytewise(stream: bytes) -> list[Request]:
    """Feed one byte at a time and ask after each."""
    parser = Parser()
    requests = []
    for position in range(len(stream)):
        parser.feed(stream[position : position + 1])
        requests += take(parser)
    return requests


def parse(stream: bytes) -> list[Request]:
    """Parse complete requests, whole and byte by byte; both must agree."""
    requests = parse_whole(stream)
    assert parse_bytewise(stream) == requests
    return requests


def replies_to(stream: bytes) -> bytes:
    """Return a server's replies to requests that are all wrong; "close" stands for the end."""
    said = []
    for request in parse(stream):
        assert request[0] in (r.BAD, r.CLOSE), request
        said.append(request[1] if request[0] == r.BAD else b"close")
    return b"".join(said)
