"""Apply logs, in a program of any release, and write what each entry of them did.

A program of its own, which imports nothing but the release: `test_random_logs` compares the
answers of a release with those of this tree. Logs come by standard input and facts leave by
standard output, each as a length of four bytes and msgpack.
"""

import sys
from typing import IO, Any

import msgpack
from crc32c import crc32c

from beanpole import commands as c
from beanpole.core.machine import Machine

try:
    from beanpole.core.image.image import Image
except ImportError:  # release 0.2.0
    from beanpole.core.image import Image  # type: ignore[attr-defined, no-redef]


def facts(log: list[bytes]) -> list[Any]:
    """Return what each entry did, and the checksum of the machine's image after it.

    An entry that cannot be applied ends the log, with the type of its exception as its only fact:
    a program that ends instead would fail at all later logs, too.
    """
    machine = Machine()
    found: list[Any] = []
    for index, entry in enumerate(log, 1):
        try:
            applied = machine.apply(index, *c.decode_entry(entry), own=0)
        except Exception as error:
            found.append([repr(type(error))])
            break
        grants = [(*grant[:5], grant[5] and grant[5].id) for grant in applied.grants]
        said = (applied.results, grants, applied.gaps, applied.downs, applied.ups, applied.epoch)
        found.append([repr(said), machine.version, _image_crc(machine)])
    return found


def _image_crc(machine: Machine) -> int:
    image, crc = Image(machine), 0
    while (chunk := image.next_chunk()) is not None:
        crc = crc32c(chunk, crc)
    image.close()
    return crc


def send(stream: IO[bytes], value: Any) -> None:
    """Write one value."""
    data = msgpack.packb(value)
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one value; None at the end of the stream."""
    size = stream.read(4)
    return msgpack.unpackb(stream.read(int.from_bytes(size, "big"))) if size else None


if __name__ == "__main__":
    while (sent := receive(sys.stdin.buffer)) is not None:
        send(sys.stdout.buffer, facts(sent))
