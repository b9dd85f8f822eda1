"""`beanpole inspect DIR`: the contents of a stopped node's data directory, as its start reads them.

Read-only. It tells an operator which disk has the newest log.
"""

import argparse
import json
import os
import time
from collections import Counter
from typing import Any, Final

from beanpole import qless as q
from beanpole.client.printing import print_lines
from beanpole.core.machine import Machine
from beanpole.errors import ConfigurationError
from beanpole.storage.readonly import ReadOnlyFiles
from beanpoled.cli.exits import EXIT_NO
from beanpoled.disk import identity as identities
from beanpoled.disk.offline import Holdings, look

MINUTE_S: Final = 60.0
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


def add_command(commands: Any) -> None:
    """Add `inspect` to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="show the contents of the data directory of a stopped node",
        description="Reads only. Of several disks, the one with the highest term of its last entry "
        "has the newest log; if those are equal, the one with the highest last index.",
    )
    parser.add_argument("directory", metavar="DIR", help="a node's data_dir")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the contents; exit status 1 if something is damaged."""
    files = ReadOnlyFiles()
    record = record_of(files, arguments.directory)
    found = look(files, arguments.directory, record)
    about = as_json(record, found)
    print_lines([json.dumps(about) if arguments.json else as_text(arguments.directory, about)])
    return EXIT_NO if about["damage"] else 0


def record_of(files: ReadOnlyFiles, directory: str) -> identities.DiskIdentity:
    """Return the record of the data directory that a command names.

    Raises:
        ConfigurationError: there is no such directory.
        StorageError: it is no data directory; for other errors see `identities.read`.
    """
    if not os.path.isdir(directory):
        raise ConfigurationError(f"DIR = {directory!r} is not allowed: there is no such directory")
    return identities.read_stopped(files, directory)


def as_json(record: identities.DiskIdentity, found: Holdings) -> dict[str, Any]:
    """Return everything that is known, in plain types; null for all that cannot be read."""
    replica, machine = found.replica, found.machine
    snapshot = None if replica is None else replica.snapshot
    return {
        "node": record.node,
        "cluster": record.cluster,
        "birth": record.birth.hex(),
        "members": list(record.members),
        "standing": record.standing,
        "incarnation": record.incarnation,
        "term": replica and replica.term,
        "voted_for": replica and replica.voted_for,
        "snapshot": snapshot
        and {"index": snapshot.index, "term": snapshot.term, "bytes": snapshot.bytes},
        "log": replica
        and {
            "first": replica.first,
            "last": replica.last,
            "last_term": replica.last_term,
            "bytes": replica.log_bytes,
        },
        "committed_at_least": found.committed,
        "last_entry_wall_s": machine and machine.wall_us / 1e6,
        "jobs": machine
        and {
            "ready": machine.queue.ready,
            "reserved": machine.queue.reserved,
            "delayed": machine.queue.delayed,
            "buried": machine.queue.buried,
            "kept": sum(space.done + space.failed for space in machine.queue.every_space),
        },
        "qless": machine and _of_qless(machine),
        "tubes": machine and len(machine.queue.tubes),
        "damage": found.damage + found.events_damage,
    }


def _of_qless(machine: Machine) -> dict[str, int]:
    """Return the number of qless's jobs by its own states."""
    counts = Counter(job.state for job in machine.qless.jobs.values())
    return {q.STATE_NAMES[state].decode(): counts[state] for state in sorted(counts)}


def as_text(directory: str, about: dict[str, Any]) -> str:
    """Return the same for people."""
    rows = [
        ("identity", f"{about['standing']}, incarnation {about['incarnation']}"),
        ("birth id", about["birth"] or "none: its cluster was not founded yet"),
        ("members", ", ".join(about["members"])),
    ]
    log, snapshot, jobs = about["log"], about["snapshot"], about["jobs"]
    if log is not None:
        vote = f", vote for {about['voted_for']}" if about["voted_for"] else ""
        rows += [
            ("term", f"{about['term']}{vote}"),
            ("last entry", f"index {log['last']} of term {log['last_term']}"),
            ("log", f"from index {log['first']}, {log['bytes']} bytes"),
            ("snapshot", _snapshot(snapshot)),
        ]
    else:
        rows.append(("last entry", "cannot be told" if about["damage"] else "none: it never ran"))
    rows.append(("committed", f"at least up to index {about['committed_at_least']}"))
    if jobs is not None:
        counts = counted(jobs)
        rows += [
            ("written", age(about["last_entry_wall_s"])),
            ("jobs", f"{counts}, in {about['tubes']} tubes"),
        ]
    if about["qless"]:
        rows.append(("qless", counted(about["qless"])))
    rows += [("damage", line) for line in about["damage"]] or [("damage", "none")]
    body = "\n".join(f"  {name:<11}{value}" for name, value in rows)
    return f"{directory}: node {about['node']} of cluster {about['cluster']}\n{body}"


def counted(jobs: dict[str, int]) -> str:
    """Return numbers of jobs by state."""
    return ", ".join(f"{count} {state}" for state, count in jobs.items())


def _snapshot(snapshot: dict[str, int] | None) -> str:
    if snapshot is None:
        return "none"
    return f"index {snapshot['index']} of term {snapshot['term']}, {snapshot['bytes']} bytes"


def age(wall_s: float) -> str:
    """Return when an entry was written, by the wall clock of its leader."""
    if not wall_s:
        return "never"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))
    passed_s = time.time() - wall_s
    # The clock of that machine, or of this one, is wrong: "0 seconds ago" hides less than a second.
    relation = "ago" if passed_s > -1 else "in the future by this machine's clock"
    passed_s = abs(passed_s)
    for unit_s, name in ((DAY_S, "days"), (HOUR_S, "hours"), (MINUTE_S, "minutes")):
        if passed_s >= 2 * unit_s:
            return f"{stamp}, {passed_s / unit_s:.0f} {name} {relation}"
    return f"{stamp}, {passed_s:.0f} seconds {relation}"
