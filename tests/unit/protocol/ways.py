"""Feed a client's bytes to the parser in every way they may arrive, and compare the results."""

from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.parser import Parser
from beanpole.protocol.beanstalk.requests import Request

JOB_SIZE_MAX = 65_535
TRAILER = b"touch 4711\r\n"


def take(parser: Parser) -> list[Request]:
    """Return all requests that the parser has now."""
    requests = []
    while (request := parser.next()) is not None:
        requests.append(request)
    return requests


def parse_whole(stream: bytes, job_size_max: int = JOB_SIZE_MAX) -> list[Request]:
    parser = Parser(job_size_max)
    parser.feed(stream)
    return take(parser)


def parse_bytewise(stream: bytes, job_size_max: int = JOB_SIZE_MAX) -> list[Request]:
    """Feed one byte at a time and ask after each."""
    parser = Parser(job_size_max)
    requests = []
    for position in range(len(stream)):
        parser.feed(stream[position : position + 1])
        requests += take(parser)
    return requests


def parse(stream: bytes, job_size_max: int = JOB_SIZE_MAX) -> list[Request]:
    """Parse complete requests: whole, byte by byte and with trailing data; all must agree."""
    requests = parse_whole(stream, job_size_max)
    assert parse_bytewise(stream, job_size_max) == requests
    trailed = parse_whole(stream + TRAILER + TRAILER[:-1], job_size_max)
    assert trailed == [*requests, (r.TOUCH, 4711)]
    return requests
