"""Apply a log, parse a client's bytes, and print digests of both as one line of JSON.

    python tests/compiled/apply_log.py LOG BYTES

test_same runs it on the sources and on the compiled tree (PYTHONPATH). LOG has entries, each after
its index and length (two 64-bit integers); BYTES is a client's input.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from beanpole import commands as c
from beanpole.core import machine as machine_module
from beanpole.core.image.image import Image
from beanpole.protocol.beanstalk.parser import Parser

HEAD = Struct("<QQ")


def entries(data: bytes) -> list[tuple[int, bytes]]:
    """Split a log into pairs of index and entry."""
    found = []
    at = 0
    while at < len(data):
        index, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        found.append((index, data[at : at + size]))
        at += size
    return found


def image_crc(machine: machine_module.Machine) -> int:
    """Return the CRC of the canonical image."""
    image, crc = Image(machine), 0
    while (chunk := image.next_chunk()) is not None:
        crc = crc32c(chunk, crc)
    image.close()
    return crc


def main(log: str, sent: str) -> None:
    """Print the results of a log and of a client's bytes."""
    machine = machine_module.Machine()
    results = sha256()
    for index, entry in entries(Path(log).read_bytes()):
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        applied = machine.apply(index, flags, time_us, wall_us, sections, own=1)
        grants = [(*grant[:5], grant[5] and grant[5].id) for grant in applied.grants]
        said = (applied.results, grants, applied.gaps, applied.downs, applied.ups)
        results.update(repr((index, said, machine.state_hash)).encode())
    parser, requests = Parser(1000), sha256()
    data = Path(sent).read_bytes()
    for start in range(0, len(data), 37):
        parser.feed(data[start : start + 37])
        while (request := parser.next()) is not None:
            requests.update(repr(request).encode())
    found = {
        "compiled": not str(machine_module.__file__).endswith(".py"),
        "index": machine.index,
        "jobs": machine.queue.jobs_total,
        "image": image_crc(machine),
        "results": results.hexdigest(),
        "requests": requests.hexdigest(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
