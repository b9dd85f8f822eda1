"""The common part of `job` and `queue`: select jobs, print them, and change them.

The commands themselves are in `job` and `queue`, the calls in `beanpole.client.admin`, the parsing
of numbers, times and sizes in `values`.
"""

import argparse
import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import grpc

from beanpole.client import where
from beanpole.client.admin import PART_IDS, Admin, AdminRefused
from beanpole.client.printing import print_lines
from beanpole.client.rpc import Nodes
from beanpole.constants import SECOND_US
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import jobs_pb2
from beanpoled.cli import values
from beanpoled.cli.exits import EXIT_NO, EXIT_NO_ANSWER, say_no
from beanpoled.cli.progress import Progress

STATES: Final[Mapping[str, jobs_pb2.JobState]] = {
    "ready": jobs_pb2.JOB_STATE_READY,
    "reserved": jobs_pb2.JOB_STATE_RESERVED,
    "delayed": jobs_pb2.JOB_STATE_DELAYED,
    "buried": jobs_pb2.JOB_STATE_BURIED,
    "done": jobs_pb2.JOB_STATE_DONE,
    "failed": jobs_pb2.JOB_STATE_FAILED,
}
STATE_WORDS: Final = {state: word for word, state in STATES.items()}
_OUTCOMES: Final = {
    jobs_pb2.JOB_OUTCOME_NOT_FOUND: "not found",
    jobs_pb2.JOB_OUTCOME_WRONG_STATE: "is not in a state in which this can be done",
    jobs_pb2.JOB_OUTCOME_ALREADY_THERE: "is there already",
    jobs_pb2.JOB_OUTCOME_QUEUE_FULL: "has no room: the queue is as long as it may be",
    jobs_pb2.JOB_OUTCOME_TOO_MANY_QUEUES: "has no queue: the cluster has as many as it may have",
    jobs_pb2.JOB_OUTCOME_OTHER_PROTOCOL: "cannot go there: that is a queue of another protocol",
    jobs_pb2.JOB_OUTCOME_QLESS: "is one of qless: use a client of qless",
}
# Of a job that was chosen by a filter: it was ended, or is in another queue.
_NOT_THERE: Final = "is not there any more"
# Unchanged jobs that are named, if there are many.
NAMED_MAX: Final = 10


def add_filter(
    parser: argparse.ArgumentParser, queue: str = "--queue", text: str = "--text"
) -> None:
    """Add the options that select jobs; `text` is the argument for a part of the body."""
    if not text.startswith("-"):
        parser.add_argument(
            text, metavar=text.upper(), type=values.body_text, help="a part of the body"
        )
    which = parser.add_argument_group("which jobs (all that is given must be true of a job)")
    which.add_argument(
        queue,
        dest="queue",
        type=values.queue_name,
        metavar="QUEUE",
        help="NAME, gearman:NAME or workq:NAME",
    )
    which.add_argument(
        "--state", action="append", choices=list(STATES), help="may be given several times"
    )
    which.add_argument(
        "--older",
        type=values.duration_s,
        default=0,
        metavar="TIME",
        help="put at least so long ago: 2h",
    )
    which.add_argument(
        "--younger",
        type=values.not_zero(values.duration_s),
        default=0,
        metavar="TIME",
        help="put at most so long ago",
    )
    if text.startswith("-"):
        words = "this stands somewhere in the body"
        which.add_argument(text, dest="text", type=values.body_text, metavar="TEXT", help=words)
    which.add_argument(
        "--protocol", type=values.protocol, metavar="NAME", help="beanstalk, workq or gearman"
    )


def filter_of(arguments: argparse.Namespace) -> jobs_pb2.JobFilter:
    """Return the filter that these options select.

    Raises:
        ConfigurationError: the options exclude each other.
    """
    text = getattr(arguments, "text", None) or ""
    if 0 < arguments.younger < arguments.older:
        raise ConfigurationError(
            f"no job is older than --older ({arguments.older} s) and younger than --younger "
            f"({arguments.younger} s)"
        )
    return jobs_pb2.JobFilter(
        queue=arguments.queue or "",
        states=[STATES[state] for state in arguments.state or ()],
        age_min_us=arguments.older * SECOND_US,
        age_max_us=arguments.younger * SECOND_US,
        body_contains=text.encode(errors="surrogateescape"),
        protocol=arguments.protocol or "",
    )


def run(act: Callable[[Admin, argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return a command: a missing object is an answer, an invalid request an error."""

    def command(arguments: argparse.Namespace) -> int:
        try:
            with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
                return act(Admin(nodes), arguments)
        except AdminRefused as error:
            if error.code == grpc.StatusCode.NOT_FOUND:
                return say_no(error, arguments.json)
            if error.code == grpc.StatusCode.INVALID_ARGUMENT:
                raise ConfigurationError(str(error)) from None
            raise

    return command


def change(
    admin: Admin, arguments: argparse.Namespace, request: jobs_pb2.ChangeRequest, done: str
) -> int:
    """Change jobs and print the result.

    Args:
        admin: the client.
        arguments: with `json` and `dry_run`.
        request: the change.
        done: the participle for the change: "deleted".
    """
    request.dry_run = arguments.dry_run
    progress = Progress(done, form=lambda count: f"{count:,.0f} jobs")

    so_far: jobs_pb2.ChangeProgress | None = None

    def look(told: jobs_pb2.ChangeProgress) -> None:
        nonlocal so_far
        so_far = told
        progress.total = told.to_scan
        progress.at(told.scanned)

    try:
        told = admin.change(request, look)
    except BaseException as error:  # a refusal, no node that answers, or Ctrl-C
        progress.end()
        if so_far is None and admin.asked_again:  # the first part, which may be done
            so_far = jobs_pb2.ChangeProgress(to_scan=len(request.job_ids))
        if arguments.dry_run or so_far is None or not (request.job_ids or so_far.changed):
            raise
        _say_broken_off(admin, request, so_far, done, arguments.json)
        if isinstance(error, AdminRefused):
            # Its own status would say that nothing was done.
            raise ClientError(str(error)) from None
        raise
    progress.end()
    unsure = admin.unsure(told)
    if arguments.json:
        by_ids = bool(request.job_ids)
        print_lines((json.dumps(_plain(told, arguments.dry_run, unsure, by_ids)),))
    else:
        _say(told, done, arguments.dry_run, bool(request.job_ids))
    if unsure:
        words = f"a node was lost: {_jobs(len(unsure))} that could not be {done}, from "
        print(f"{words}{unsure[0]} on, may have been {done} there", file=sys.stderr)
        return EXIT_NO_ANSWER
    failed = told.matched > told.changed or told.stopped_by
    return EXIT_NO if failed else 0


def _say_broken_off(
    admin: Admin,
    request: jobs_pb2.ChangeRequest,
    told: jobs_pb2.ChangeProgress,
    done: str,
    as_json: bool,
) -> None:
    """Print what is done, what may be done, and what is not: ids of jobs are changed in parts."""
    if not request.job_ids:
        # The answer to the last part may be missing, though the part is done.
        print(f"broken off: {_jobs(told.changed)} {done}, perhaps some more", file=sys.stderr)
        return
    left = list(request.job_ids[told.scanned :])
    part = left[:PART_IDS]
    unsure = part if admin.asked_again.issuperset(part) else []
    rest = left[len(unsure) :]
    if as_json:
        plain = _plain(told, False, [*admin.unsure(told), *unsure], by_ids=True)
        plain["not_changed"] += [{"id": one, "why": "was not reached"} for one in rest]
        print_lines((json.dumps(plain),))
    else:
        _name_missed(told, by_ids=True)
    words = [f"{_jobs(told.changed)} {done}, {told.matched - told.changed:,} not"]
    if unsure:
        words.append(f"{_jobs(len(unsure))} from {unsure[0]} on perhaps")
    if rest:
        words.append(f"{_jobs(len(rest))} from {rest[0]} on not reached")
    print(f"broken off: {'; '.join(words)}", file=sys.stderr)


def _plain(
    told: jobs_pb2.ChangeProgress, dry_run: bool, unsure: Sequence[int], by_ids: bool
) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "matched": told.matched,
        "changed": told.changed,
        "not_changed": [
            {"id": one.id, "why": _why(one, by_ids) or "unknown"}
            for one in told.results
            if one.outcome != jobs_pb2.JOB_OUTCOME_DONE
        ],
        "may_be_changed": [*unsure],
        "stopped_by": _OUTCOMES.get(told.stopped_by),
    }


def _say(told: jobs_pb2.ChangeProgress, done: str, dry_run: bool, by_ids: bool) -> None:
    verb = f"would be {done}" if dry_run else done
    if by_ids and len(told.results) == 1 and told.results[0].outcome == jobs_pb2.JOB_OUTCOME_DONE:
        print_lines((f"job {told.results[0].id} {verb}",))
        return
    _name_missed(told, by_ids)
    left = told.matched - told.changed
    also = f", {left:,} not" if left else ""
    print_lines((f"{_jobs(told.changed)} {verb}{also}",))
    if told.stopped_by:
        print("stopped there: no job behind it would fare better", file=sys.stderr)


def _name_missed(told: jobs_pb2.ChangeProgress, by_ids: bool) -> None:
    missed = [one for one in told.results if one.outcome != jobs_pb2.JOB_OUTCOME_DONE]
    for one in missed if by_ids else missed[:NAMED_MAX]:
        print(f"job {one.id} {_why(one, by_ids) or 'was not changed'}", file=sys.stderr)


def _why(result: jobs_pb2.JobResult, by_ids: bool) -> str | None:
    """Return why a job was not changed; None for a reason of a later release."""
    if result.outcome == jobs_pb2.JOB_OUTCOME_NOT_FOUND and not by_ids:
        return _NOT_THERE
    return _OUTCOMES.get(result.outcome)


def _jobs(count: int) -> str:
    return f"{count:,} {'job' if count == 1 else 'jobs'}"


def confirm(
    admin: Admin, arguments: argparse.Namespace, request: jobs_pb2.ChangeRequest, words: str
) -> bool:
    """Ask before many jobs are destroyed; return True if that is intended.

    Raises:
        ConfigurationError: there is no terminal to ask at.
    """
    if arguments.yes or arguments.dry_run:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigurationError(f"{words}: --yes says that it is meant, --dry-run counts the jobs")
    counting = jobs_pb2.ChangeRequest()
    counting.CopyFrom(request)
    counting.dry_run = True
    count = admin.change(counting).changed
    question = f"{words}: {count:,} jobs. They cannot be brought back. Go on? [y/N] "
    print(question, end="", file=sys.stderr if arguments.json else sys.stdout, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- formatting of jobs ---------------------------------------------------------------------------


def as_plain(job: jobs_pb2.AdminJob) -> dict[str, Any]:
    """Return a job for programs. Times are in seconds; null where one does not apply."""
    state = STATE_WORDS[job.state]
    found: dict[str, Any] = {
        "id": job.id,
        "queue": job.queue,
        "state": state,
        "priority": job.priority,
        "age_s": job.age_us / SECOND_US,
        "delay_s": job.delay_us / SECOND_US,
        "ttr_s": job.ttr_us / SECOND_US,
        "left_s": job.left_us / SECOND_US if job.left_us else None,
        "since_s": job.since_us / SECOND_US if state in ("ready", "reserved") else None,
        "body_bytes": job.body_bytes,
        "reserves": job.reserves,
        "timeouts": job.timeouts,
        "releases": job.releases,
        "buries": job.buries,
        "kicks": job.kicks,
        **_as_text("body", job.body, job.body_bytes),
    }
    if state == "reserved":
        found["holder"] = holder_of(job)
    if job.ended_in:
        found["ended_in"] = job.ended_in
        found["ended_by"] = job.ended_by
    if job.protocol:
        found["made_by"] = job.protocol
        found["external_id"] = job.external_id
        found["attempts_max"] = job.attempts_max
        found["failures"] = job.failures
        found["failures_max"] = job.failures_max
        found["clients"] = job.clients
        found["ttl_left_s"] = job.ttl_left_us / SECOND_US if job.ttl_left_us else None
        found |= _as_text("progress", job.progress)
        found |= _as_text("result", job.result, job.result_bytes)
    return found


def holder_of(job: jobs_pb2.AdminJob) -> dict[str, Any] | None:
    """Return the connection that holds a reserved job; None if no session holds it."""
    its = job.holder
    if not its.node:
        return None
    return {
        "node": its.node,
        "protocol": its.protocol,
        "session": its.session,
        "host": its.host or None,
        "detached": its.detached,
    }


def _as_text(key: str, value: bytes, whole_bytes: int = 0) -> dict[str, str]:
    """Return bytes as text if they are valid UTF-8, else in base64 under another key.

    If they are the beginning of more, a truncated last character is left out.
    """
    try:
        return {key: value.decode()}
    except UnicodeDecodeError as error:
        if len(value) < whole_bytes and error.reason == "unexpected end of data":
            return {key: value[: error.start].decode()}
        return {f"{key}_base64": base64.b64encode(value).decode()}
