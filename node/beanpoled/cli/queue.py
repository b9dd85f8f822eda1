"""`beanpole queue`: list and show queues; clear, kick, pause and resume one.

The report of changed jobs is in `choosing`; commands for single jobs are in `job`.
"""

import argparse
import json
from typing import Any, Final

from beanpole.client import where
from beanpole.client.admin import Admin
from beanpole.client.terminals import visible
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.errors import ConfigurationError
from beanpole.pb import jobs_pb2
from beanpoled.cli import choosing, values
from beanpoled.cli.choosing import STATES
from beanpoled.cli.columns import Column, duration_words, name_words, table, terminal_chars
from beanpoled.cli.exits import EXIT_NO, say_no

_COLUMNS: Final = (
    Column("queue", 28, False),
    Column("ready", 9),
    Column("reserved", 9),
    Column("delayed", 9),
    Column("buried", 9),
    Column("kept", 7, True, 3),
    Column("workers", 7, True, 2),
    Column("oldest", 7, True, 1),
    Column(" ", 8, False),
)
_CLEARED: Final = tuple(state for state in STATES if state != "reserved")
_NAMES: Final = (
    "A tube of beanstalk is its name; a queue of another protocol has that before it: "
    "gearman:resize, workq:resize."
)
_SORTS: Final = ("name", "jobs", "oldest")


def add_command(commands: Any) -> None:
    """Add `queue` to the parser."""
    parser = commands.add_parser(
        "queue", help="list, show, clear, kick, pause and resume queues", description=_NAMES
    )
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = _add(ways, "list", _list, "list all queues: their jobs by state, the oldest job's age")
    way.add_argument(
        "--sort", choices=_SORTS, default="name", help="order of the list (default: name)"
    )
    _add_one(_add(ways, "show", _show, "show all that is known of a queue"))
    way = _add_one(_add(ways, "clear", _clear, "delete the jobs of a queue"))
    way.add_argument(
        "--state",
        action="append",
        choices=list(STATES),
        help="only these (default: all but reserved ones)",
    )
    way.add_argument("--yes", action="store_true", help="do not ask first")
    way.add_argument("--dry-run", action="store_true", help="say how many would be deleted")
    way = _add_one(_add(ways, "kick", _kick, "make the buried jobs of a queue ready, or some"))
    way.add_argument(
        "count",
        type=values.positive,
        nargs="?",
        default=0,
        metavar="COUNT",
        help="the number of jobs, the oldest first (default: all)",
    )
    way.add_argument(
        "--state",
        choices=["buried", "delayed"],
        default="buried",
        help="kick jobs of this state (default: buried)",
    )
    way.add_argument("--dry-run", action="store_true", help="say how many would be kicked")
    way = _add_one(_add(ways, "pause", _pause, "give out no job of a queue"))
    way.add_argument(
        "--for",
        dest="seconds",
        type=values.duration_s,
        default=U32_MAX,
        metavar="TIME",
        help="such as 90s, 15m, 2h (default: until it is resumed)",
    )
    _add_one(_add(ways, "resume", _resume, "end the pause of a queue"))


def _add(ways: Any, name: str, act: Any, words: str) -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words, description=_NAMES)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=choosing.run(act))
    return way


def _add_one(way: argparse.ArgumentParser) -> argparse.ArgumentParser:
    words = "NAME, gearman:NAME or workq:NAME"
    way.add_argument("queue", type=values.queue_name, metavar="QUEUE", help=words)
    return way


# --- reading --------------------------------------------------------------------------------------


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    queues = list(admin.queues(oldest=True))
    keys = {
        "name": lambda one: (one.protocol != "beanstalk", one.name),
        "jobs": lambda one: (-_jobs(one), one.name),
        "oldest": lambda one: (-one.oldest_age_us, one.name),
    }
    queues.sort(key=keys[arguments.sort])
    if arguments.json:
        print(json.dumps([_plain(one) for one in queues]))
        return 0
    lines, _ = table(_COLUMNS, [_row(one) for one in queues], terminal_chars())
    print("\n".join(lines))
    return 0


def _show(admin: Admin, arguments: argparse.Namespace) -> int:
    one = _found(admin, arguments)
    if one is None:
        return EXIT_NO
    plain = _plain(one)
    if arguments.json:
        print(json.dumps(plain))
        return 0
    for key, value in plain.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        print(f"{key + ':':<18} {'-' if shown is None or shown == '' else visible(str(shown))}")
    return 0


def _found(admin: Admin, arguments: argparse.Namespace) -> jobs_pb2.AdminQueue | None:
    name = arguments.queue
    reply = admin.ask("ListQueues", jobs_pb2.ListQueuesRequest(queue=name, oldest=True))
    if not reply.queues:
        say_no(f"no queue {name!r}; `beanpole queue list` lists all", arguments.json)
        return None
    one: jobs_pb2.AdminQueue = reply.queues[0]
    return one


def _jobs(one: jobs_pb2.AdminQueue) -> int:
    return one.ready + one.reserved + one.delayed + one.buried + one.kept


def _plain(one: jobs_pb2.AdminQueue) -> dict[str, Any]:
    return {
        "name": one.name,
        "protocol": one.protocol,
        "ready": one.ready,
        "reserved": one.reserved,
        "delayed": one.delayed,
        "buried": one.buried,
        "kept": one.kept,
        "put_in_all": one.jobs_total,
        "deleted_in_all": one.deletes,
        "producers": one.producers,
        "workers": one.workers,
        "paused": one.paused,
        "pause_left_s": one.pause_left_us / SECOND_US if one.pause_left_us else None,
        "next_ready_for_s": one.next_ready_us / SECOND_US if one.ready else None,
        "oldest_job": one.oldest_id or None,
        "oldest_age_s": one.oldest_age_us / SECOND_US if one.oldest_id else None,
        "aliases": list(one.aliases),
    }


def _row(one: jobs_pb2.AdminQueue) -> tuple[object, ...]:
    qless = one.protocol == "qless"
    return (
        name_words(one.name, 28),
        one.ready,
        one.reserved,
        one.delayed,
        "-" if qless else one.buried,
        "-" if qless else one.kept,
        "-" if qless else one.workers,
        duration_words(one.oldest_age_us / SECOND_US) if one.oldest_id else "-",
        " paused" if one.paused else "",
    )


# --- changing -------------------------------------------------------------------------------------


def _clear(admin: Admin, arguments: argparse.Namespace) -> int:
    states = arguments.state or _CLEARED
    request = jobs_pb2.ChangeRequest(
        action=jobs_pb2.JOB_ACTION_DELETE,
        filter=jobs_pb2.JobFilter(
            queue=arguments.queue, states=[STATES[state] for state in states]
        ),
        reserved="reserved" in states,
    )
    if _found(admin, arguments) is None:
        return EXIT_NO
    if not choosing.confirm(admin, arguments, request, f"queue clear {arguments.queue}"):
        return EXIT_NO
    return choosing.change(admin, arguments, request, "deleted")


def _kick(admin: Admin, arguments: argparse.Namespace) -> int:
    request = jobs_pb2.ChangeRequest(
        action=jobs_pb2.JOB_ACTION_KICK,
        filter=jobs_pb2.JobFilter(queue=arguments.queue, states=[STATES[arguments.state]]),
        count_max=arguments.count,
    )
    if _found(admin, arguments) is None:
        return EXIT_NO
    return choosing.change(admin, arguments, request, "kicked")


def _pause(admin: Admin, arguments: argparse.Namespace) -> int:
    if not 0 < arguments.seconds <= U32_MAX:
        raise ConfigurationError(f"--for: a pause of 1 to {U32_MAX} s; `queue resume` ends one")
    until = "until it is resumed"
    if arguments.seconds < U32_MAX:
        until = f"for {arguments.seconds} s"
    return _set_pause(admin, arguments, arguments.seconds, f"is paused {until}")


def _resume(admin: Admin, arguments: argparse.Namespace) -> int:
    return _set_pause(admin, arguments, 0, "goes on")


def _set_pause(admin: Admin, arguments: argparse.Namespace, seconds: int, words: str) -> int:
    admin.ask("PauseQueue", jobs_pb2.PauseQueueRequest(queue=arguments.queue, seconds=seconds))
    if arguments.json:
        print(json.dumps({"queue": arguments.queue, "paused": seconds > 0}))
    else:
        print(f"{visible(arguments.queue)} {words}")
    return 0
