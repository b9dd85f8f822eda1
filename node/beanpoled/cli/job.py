"""`beanpole job`: list, search and read jobs, and change one or many of them.

The selection of jobs and the report of a change are in `choosing`. The commands for using the queue
by hand (`put`, `reserve`, ...) are in `jobs`.
"""

import argparse
import json
import sys
from typing import Any, Final

import grpc

from beanpole.client import where
from beanpole.client.admin import Admin, AdminRefused
from beanpole.client.outcome import FAILURES_SUFFIX
from beanpole.client.terminals import visible
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.errors import ConfigurationError
from beanpole.pb import jobs_pb2
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpoled.cli import choosing, values
from beanpoled.cli.columns import LINES, Column, duration_words, name_words, table, terminal_chars
from beanpoled.cli.exits import EXIT_NO

LIMIT_DEFAULT: Final = 100
# A line of a table shows the beginning of a body.
BODY_CHARS: Final = 40
BODY_BYTES_JSON: Final = 65_536
PAGE_JOBS: Final = 1000
_COLUMNS: Final = (
    Column("id", 12),
    Column("queue", 24, False),
    Column("state", 8, False),
    Column("priority", 10, True, 1),
    Column("age", 7),
    Column("left", 7, True, 2),
    Column("tries", 5, True, 3),
    Column("bytes", 8, True, 4),
    Column(" body", 8, False),
)
_MOVED: Final = {
    "ready": jobs_pb2.MOVED_STATE_READY,
    "buried": jobs_pb2.MOVED_STATE_BURIED,
    "same": jobs_pb2.MOVED_STATE_SAME,
}
_NAMES: Final = (
    "A tube of beanstalk is its name; a queue of another protocol has that before it: "
    "gearman:resize, workq:resize. Jobs of qless are listed and changed in their own protocol."
)


def add_command(commands: Any) -> None:
    """Add `job` to the parser."""
    parser = commands.add_parser(
        "job",
        help="list, search, show, delete, kick, bury, change and move jobs",
        description=_NAMES,
    )
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = _add(ways, "list", _list, "list jobs, the oldest first")
    _add_listing(way)
    way = _add(ways, "search", _list, "list jobs whose body has a text in it")
    _add_listing(way, "text")
    way = _add(ways, "show", _show, "show a job: its body and all that is known of it")
    way.add_argument("job", type=values.whole, metavar="ID", help="its id")
    way = _add_change(ways, "delete", _delete, "delete jobs")
    way.add_argument("--yes", action="store_true", help="do not ask before many are deleted")
    way.add_argument(
        "--reserved", action="store_true", help="also those that a worker has at the moment"
    )
    _add_change(ways, "kick", _kick, "make buried and delayed jobs ready")
    _add_change(ways, "bury", _bury, "put ready and delayed jobs aside until they are kicked")
    way = _add_change(ways, "change", _change, "give jobs another priority, or another delay")
    way.add_argument(
        "--priority", type=values.number(0, U32_MAX), metavar="NUMBER", help="lower is sooner"
    )
    way.add_argument(
        "--delay", type=values.duration_s, metavar="TIME", help="from now on; 0 makes them ready"
    )
    way = _add_change(ways, "move", _move, "move jobs to another queue", queue="--from")
    words = "of the same protocol"
    way.add_argument("--to", type=values.queue_name, required=True, metavar="QUEUE", help=words)
    way.add_argument(
        "--as",
        dest="moved",
        choices=list(_MOVED),
        help="their state there (default: buried ones become ready, others stay what they are)",
    )


def _add(ways: Any, name: str, act: Any, words: str) -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words, description=_NAMES)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=choosing.run(act), way=name)
    return way


def _add_listing(way: argparse.ArgumentParser, text: str = "--text") -> None:
    choosing.add_filter(way, text=text)
    way.add_argument(
        "--limit",
        type=values.whole,
        default=LIMIT_DEFAULT,
        metavar="NUMBER",
        help=f"the largest number of jobs (default {LIMIT_DEFAULT}); 0: all",
    )
    way.add_argument(
        "--after", type=values.whole, default=0, metavar="ID", help="only jobs with higher ids"
    )


def _add_change(
    ways: Any, name: str, act: Any, words: str, queue: str = "--queue"
) -> argparse.ArgumentParser:
    way = _add(ways, name, act, words)
    way.add_argument("job", type=values.whole, nargs="*", metavar="ID", help="these jobs, or:")
    choosing.add_filter(way, queue)
    way.add_argument(
        "--limit",
        type=values.positive,
        default=0,
        metavar="NUMBER",
        help="the largest number of these, the oldest first (default: all)",
    )
    way.add_argument("--dry-run", action="store_true", help="say what would be done")
    return way


# --- reading --------------------------------------------------------------------------------------


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    request = jobs_pb2.ListJobsRequest(
        filter=choosing.filter_of(arguments),
        after_id=arguments.after,
        body_bytes=BODY_BYTES_JSON if arguments.json else BODY_CHARS * 4,
        limit=min(arguments.limit or PAGE_JOBS, PAGE_JOBS),
    )
    found: list[jobs_pb2.AdminJob] = []
    count, more = 0, False
    for page in admin.pages(request):
        found += page.jobs
        count += len(page.jobs)
        if arguments.limit and count >= arguments.limit:
            more = not page.complete or count > arguments.limit
            break
    if arguments.limit:
        del found[arguments.limit :]
    if arguments.json:
        print(json.dumps([choosing.as_plain(job) for job in found]))
    elif found:
        lines, _ = table(_COLUMNS, [_row(job) for job in found], terminal_chars())
        print("\n".join(lines))
    else:
        print("no jobs")
    if more:
        words = f"there may be more: --after {found[-1].id} goes on, --limit 0 lists all"
        print(words, file=sys.stderr)
    return 0


def _row(job: jobs_pb2.AdminJob) -> tuple[object, ...]:
    left = duration_words(job.left_us / SECOND_US) if job.left_us else "-"
    return (
        job.id,
        name_words(job.queue, 24),
        choosing.STATE_WORDS[job.state],
        job.priority,
        duration_words(job.age_us / SECOND_US),
        left,
        job.reserves,
        job.body_bytes,
        " " + name_words(job.body.decode(errors="backslashreplace"), BODY_CHARS),
    )


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    job = admin.ask("GetJob", jobs_pb2.GetJobRequest(id=arguments.job))
    note = _note(admin, job)
    plain = choosing.as_plain(job)
    if note is not None:
        plain["note"] = note
    if arguments.json:
        print(json.dumps(plain))
        return 0
    for key, value in plain.items():
        if key not in ("body", "result", "note", "holder"):
            print(f"{key + ':':<14} {'-' if value is None else visible(str(value))}")
    if "holder" in plain:
        its = choosing.holder_of(job)
        words = "nobody's: any worker may end the reservation"
        if its is not None:
            words = f"session {its['session']} ({its['protocol']}) at node {its['node']}"
            words += f", from {visible(its['host'])}" if its["host"] else ""
            words += ", whose connection is lost" if its["detached"] else ""
        print(f"{'holder:':<14} {words}")
    for key in ("body", "result", "note"):
        if plain.get(key):
            print(f"--- {key} ---\n{visible(plain[key], kept=LINES)}")
    return 0


def _note(admin: Admin, job: jobs_pb2.AdminJob) -> str | None:
    """Return the newest note that a worker of `beanpole.client` wrote when it buried a job."""
    if job.state != jobs_pb2.JOB_STATE_BURIED or ":" in job.queue:
        return None
    notes = job.queue + FAILURES_SUFFIX
    if not is_tube_name(notes.encode()):
        return None  # the name is too long for a tube with notes
    head = b"job %d\n\n" % job.id
    wanted = jobs_pb2.JobFilter(queue=notes, body_contains=head)
    request = jobs_pb2.ListJobsRequest(filter=wanted, body_bytes=BODY_BYTES_JSON)
    note = None
    try:
        for page in admin.pages(request):
            for one in page.jobs:
                if one.body.startswith(head):
                    note = one.body[len(head) :].decode(errors="replace")
    except AdminRefused as error:
        if error.code != grpc.StatusCode.PERMISSION_DENIED:
            raise
        # The right in the job's queue is enough for all the rest.
        print(f"a note of its worker is not looked for: {error}", file=sys.stderr)
    return note


# --- changing -------------------------------------------------------------------------------------


def _request(arguments: argparse.Namespace, action: jobs_pb2.JobAction) -> jobs_pb2.ChangeRequest:
    wanted = choosing.filter_of(arguments)
    if arguments.job and wanted.ByteSize():
        raise ConfigurationError(f"job {arguments.way}: either ids of jobs, or options that choose")
    if arguments.job and arguments.limit:
        # A node ignores the limit there: all these jobs would be changed.
        raise ConfigurationError(f"job {arguments.way}: --limit is not for ids of jobs")
    if not arguments.job and not wanted.ByteSize():
        words = "give ids of jobs, or options such as --queue and --state"
        raise ConfigurationError(f"job {arguments.way}: which jobs? {words}")
    # Lists that scripts join may have a job twice, and its second change would have failed.
    job_ids = dict.fromkeys(arguments.job)
    return jobs_pb2.ChangeRequest(
        action=action, job_ids=job_ids, filter=wanted, count_max=arguments.limit
    )


def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    request = _request(arguments, jobs_pb2.JOB_ACTION_DELETE)
    request.reserved = arguments.reserved or "reserved" in (arguments.state or ())
    if not arguments.job and not choosing.confirm(admin, arguments, request, "job delete"):
        return EXIT_NO
    return choosing.change(admin, arguments, request, "deleted")


def _kick(admin: Admin, arguments: argparse.Namespace) -> int:
    request = _request(arguments, jobs_pb2.JOB_ACTION_KICK)
    return choosing.change(admin, arguments, request, "kicked")


def _bury(admin: Admin, arguments: argparse.Namespace) -> int:
    request = _request(arguments, jobs_pb2.JOB_ACTION_BURY)
    return choosing.change(admin, arguments, request, "buried")


def _change(admin: Admin, arguments: argparse.Namespace) -> int:
    if (arguments.priority is None) == (arguments.delay is None):
        raise ConfigurationError("job change: give --priority or --delay, one of the two")
    request = _request(arguments, jobs_pb2.JOB_ACTION_SET_PRIORITY)
    if arguments.delay is not None:
        request.action = jobs_pb2.JOB_ACTION_SET_DELAY
        request.delay_s = arguments.delay
    else:
        request.priority = arguments.priority
    return choosing.change(admin, arguments, request, "changed")


def _move(admin: Admin, arguments: argparse.Namespace) -> int:
    request = _request(arguments, jobs_pb2.JOB_ACTION_MOVE)
    request.to_queue = arguments.to
    if arguments.moved:
        request.moved_state = _MOVED[arguments.moved]
    return choosing.change(admin, arguments, request, f"moved to {arguments.to}")
