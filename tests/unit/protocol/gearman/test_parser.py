"""The server's side of the Gearman protocol: packets and lines, and what is wrong with others."""

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.parser import BAD, CLOSE, TEXT, Parser, Request


def packet(kind: int, body: bytes = b"", magic: bytes = p.REQUEST_MAGIC) -> bytes:
    """One packet, right or wrong."""
    return p.HEADER.pack(magic, kind, len(body)) + body


def parse(*pieces: bytes) -> list[Request]:
    """All requests of a stream."""
    parser = Parser()
    found = []
    for piece in pieces:
        parser.feed(piece)
        while (request := parser.next()) is not None:
            found.append(request)
            if request[0] == CLOSE:
                return found
    return found


def test_packets_and_lines_follow_each_other() -> None:
    stream = b"version\r\n" + packet(p.ECHO_REQ, b"a\0b") + b"status\n" + packet(p.PRE_SLEEP)
    expected = [(TEXT, (b"version",)), (p.ECHO_REQ, (b"a\0b",)), (TEXT, (b"status",))]
    assert parse(stream) == [*expected, (p.PRE_SLEEP, ())]
    assert parse(*(bytes([byte]) for byte in stream)) == [*expected, (p.PRE_SLEEP, ())]


def test_what_is_no_packet_closes() -> None:
    for stream in (b"\0REX" + bytes(8), packet(0), packet(43), packet(99, b"", p.REPLY_MAGIC)):
        assert parse(packet(p.PRE_SLEEP) + stream + packet(p.PRE_SLEEP)) == [
            (p.PRE_SLEEP, ()),
            (CLOSE, (b"",)),
        ]
    assert parse(b"\0XY") == [(CLOSE, (b"",))], "before a whole header came"


def test_packets_of_a_server_are_refused_and_passed_over() -> None:
    stream = packet(p.WORK_COMPLETE, b"h\0" + bytes(300), p.REPLY_MAGIC) + packet(p.PRE_SLEEP)
    assert parse(stream) == [(BAD, (replies.INVALID_MAGIC,)), (p.PRE_SLEEP, ())]
    for kind in {*range(1, p.TYPE_MAX + 1)} - {*p.REQUEST_ARGUMENTS}:
        stream = packet(kind, b"anything") + packet(p.PRE_SLEEP)
        assert parse(stream) == [(BAD, (replies.INVALID_COMMAND,)), (p.PRE_SLEEP, ())]
