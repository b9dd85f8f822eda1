"""`beanpole policy`: the rules of queues.

This file has the options with their units, and prints policies; docs/policies.md describes them.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from beanpole.client import where
from beanpole.client.patience import REPLY_TIMEOUT_S
from beanpole.client.terminals import visible
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core.jobs.rates import RATE_MAX, RATE_PERIOD_MAX_US, RATE_PERIOD_MIN_US
from beanpole.core.operations.policies import UNIQUE_WINDOW_MAX_US
from beanpole.errors import ConfigurationError
from beanpole.events import GEARMAN
from beanpole.numbers import whole_number
from beanpole.pb import policies_pb2, policies_pb2_grpc
from beanpoled.cli import values
from beanpoled.cli.asking import ask, says_absent
from beanpoled.cli.exits import say_done, say_no
from beanpoled.rpc.queue_names import is_of

_PATTERN: Final = "a queue, or the beginning of names and *, quoted for the shell"
_WHEN_FULL: Final = {
    "refuse": policies_pb2.WHEN_FULL_REFUSE,
    "drop-oldest": policies_pb2.WHEN_FULL_DROP_OLDEST,
}
_FULL_WORDS: Final = {value: word for word, value in _WHEN_FULL.items()}
_FULL_RULES: Final = {
    policies_pb2.WHEN_FULL_REFUSE: "a put is refused",
    policies_pb2.WHEN_FULL_DROP_OLDEST: "a put drops the oldest ready job",
}
_UNITS: Final = (
    *(("d", 86_400 * SECOND_US), ("h", 3600 * SECOND_US), ("min", 60 * SECOND_US)),
    *(("s", SECOND_US), ("ms", 1000)),
)

# A node names the fields of the call, a user of this command knows its options.
_OPTIONS: Final = {
    "attempts_max": "--attempts",
    "dead": "--dead",
    "jobs_max": "--jobs-max",
    "bytes_max": "--bytes-max",
    "when_full": "--full",
    "ttr_s": "--default-ttr",
    "priority": "--default-priority",
    "unique_window_us": "--unique",
}
# Shows whether a change without an answer took effect.
_LOOK: Final = "beanpole policy list"

T = TypeVar("T")


def add_command(commands: Any) -> None:
    """Add `policy` to the parser."""
    parser = commands.add_parser("policy", help="rules of queues: attempts, limits, rates and more")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = ways.add_parser(
        "set",
        help="set the policy of a queue, or of all that begin alike",
        description="An option that is left out means no rule: the whole policy is replaced.",
    )
    way.add_argument("pattern", metavar="PATTERN", help=_PATTERN)
    _add_rules(way)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_set)
    way = ways.add_parser("drop", help="remove a policy; its jobs stay where they are")
    way.add_argument("pattern", metavar="PATTERN", help=_PATTERN)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_drop)
    way = ways.add_parser("list", help="print all policies, or the one that counts for a queue")
    words = "only what counts for it"
    way.add_argument("--queue", type=values.queue_name, metavar="QUEUE", help=words)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_list)
    way = ways.add_parser("show", help="print which policy counts for a queue, and its rules")
    words = "NAME, gearman:NAME or workq:NAME"
    way.add_argument("queue", type=values.queue_name, metavar="QUEUE", help=words)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_show)


def _add_rules(way: argparse.ArgumentParser) -> None:
    rules = way.add_argument_group("rules (those with a * are for tubes of beanstalk only)")
    rules.add_argument(
        "--attempts",
        type=values.limit,
        default=0,
        metavar="N",
        help="a job that was reserved so often, and comes back, is not given out again; one of "
        "Gearman fails (not for Workq)",
    )
    rules.add_argument(
        "--dead", default="", metavar="TUBE", help="* move it there (default: bury it)"
    )
    rules.add_argument(
        "--jobs-max",
        type=values.limit,
        default=0,
        metavar="N",
        help="jobs of all states",
    )
    rules.add_argument(
        "--bytes-max",
        type=values.not_zero(values.size_bytes),
        default=0,
        metavar="SIZE",
        help="of all bodies: 64MiB",
    )
    rules.add_argument(
        "--full", choices=list(_WHEN_FULL), help="what a put does then (default: refuse)"
    )
    rules.add_argument(
        "--default-ttr",
        type=values.not_zero(values.duration_s, "there is no default"),
        default=0,
        metavar="TIME",
        help="of jobs that are put without one, such as 5m",
    )
    rules.add_argument(
        "--default-priority",
        type=values.number(1, U32_MAX, "there is no default"),
        default=0,
        metavar="N",
        help="* of jobs that are put without one, by gRPC",
    )
    _add_times(rules)


def _add_times(rules: argparse._ArgumentGroup) -> None:
    rules.add_argument(
        "--retain-buried",
        type=values.not_zero(values.duration_s, "they are kept"),
        default=0,
        metavar="TIME",
        help="delete jobs that have been buried for so long: 7d",
    )
    rules.add_argument(
        "--retain-delayed",
        type=values.not_zero(values.duration_s, "they are kept"),
        default=0,
        metavar="TIME",
        help="delete jobs that have been delayed for so long",
    )
    rules.add_argument(
        "--unique",
        type=values.not_zero(_window_s, "every put makes a job"),
        default=0,
        metavar="TIME",
        help="* a put of the same body in this time makes no job: 10m",
    )
    rules.add_argument(
        "--rate", type=rate, default=(0, 0), metavar="N/TIME", help="jobs given out: 100/s, 5/10m"
    )
    rules.add_argument(
        "--none",
        action="store_true",
        help="no rule at all, so that no policy of a shorter pattern counts",
    )


def _window_s(text: str) -> int:
    seconds = values.duration_s(text)
    if seconds * SECOND_US > UNIQUE_WINDOW_MAX_US:
        most = time_words(UNIQUE_WINDOW_MAX_US)
        raise argparse.ArgumentTypeError(f"{text!r} is too long: at most {most}")
    return seconds


def rate(text: str) -> tuple[int, int]:
    """Parse a rate such as 100/s, 5/10m or 1/500ms: a count, and a period in microseconds."""
    found = _rate(text)
    if not (1 <= found[0] <= RATE_MAX and RATE_PERIOD_MIN_US <= found[1] <= RATE_PERIOD_MAX_US):
        periods = f"{time_words(RATE_PERIOD_MIN_US)} to {time_words(RATE_PERIOD_MAX_US)}"
        words = f"{text!r} is not allowed: 1 to {RATE_MAX} jobs in a period of {periods}"
        raise argparse.ArgumentTypeError(words)
    return found


def _rate(text: str) -> tuple[int, int]:
    count, slash, period = text.partition("/")
    jobs = whole_number(count)
    if slash and jobs is not None and period and len(count) <= 9:
        thousandths = whole_number(period[:-2]) if period.endswith("ms") else None
        if thousandths is not None and len(period) <= 9:
            return jobs, thousandths * 1000
        if period in ("s", "m", "h", "d"):
            period = f"1{period}"
        if whole_number(period[:1]) is not None:
            return jobs, values.duration_s(period) * SECOND_US
    words = f"{text!r} is no rate: a number, a slash, and a time: 100/s, 5/10m, 1/500ms"
    raise argparse.ArgumentTypeError(words)


def _set(arguments: argparse.Namespace) -> int:
    if arguments.dead and arguments.dead == arguments.pattern:
        raise ConfigurationError(
            f"--dead {arguments.dead}: these jobs are in that tube; without --dead they are buried"
        )
    if arguments.dead and not arguments.attempts:
        raise ConfigurationError(
            f"--dead {arguments.dead} needs --attempts N: the attempts after which jobs move there"
        )
    if arguments.full and not (arguments.jobs_max or arguments.bytes_max):
        raise ConfigurationError(
            f"--full {arguments.full} needs the limit that it is about: --jobs-max or --bytes-max"
        )
    policy = _policy(arguments)
    if (policy == policies_pb2.Policy(pattern=arguments.pattern)) != arguments.none:
        raise ConfigurationError("give at least one rule, or --none and no rule")
    request = policies_pb2.SetPolicyRequest(policy=policy)
    try:
        _ask(arguments, lambda stub: stub.Set(request, timeout=REPLY_TIMEOUT_S), _LOOK)
    except ConfigurationError as error:
        raise ConfigurationError(_by_options(str(error))) from None
    words = f"{policy.pattern}: {'; '.join(rules_of(policy))}"
    return say_done(words, _as_json(policy), arguments.json)


def _policy(arguments: argparse.Namespace) -> policies_pb2.Policy:
    count, period_us = arguments.rate
    return policies_pb2.Policy(
        pattern=arguments.pattern,
        attempts_max=arguments.attempts,
        dead=arguments.dead,
        jobs_max=arguments.jobs_max,
        bytes_max=arguments.bytes_max,
        when_full=_WHEN_FULL.get(arguments.full),
        ttr_s=arguments.default_ttr,
        priority=arguments.default_priority,
        retain_buried_us=arguments.retain_buried * SECOND_US,
        retain_delayed_us=arguments.retain_delayed * SECOND_US,
        unique_window_us=arguments.unique * SECOND_US,
        rate=count,
        rate_period_us=period_us,
    )


def _by_options(words: str) -> str:
    """Return a node's refusal with the option in place of the field with which it begins."""
    first, space, rest = words.partition(" ")
    return f"{_OPTIONS.get(first.removesuffix(':'), first)}{space}{rest}"


@says_absent
def _drop(arguments: argparse.Namespace) -> int:
    request = policies_pb2.DropPolicyRequest(pattern=arguments.pattern)
    _ask(arguments, lambda stub: stub.Drop(request, timeout=REPLY_TIMEOUT_S), _LOOK)
    words = f"{arguments.pattern} has no policy any more"
    return say_done(words, {"dropped": arguments.pattern}, arguments.json)


def _list(arguments: argparse.Namespace) -> int:
    found = _found(arguments)
    if arguments.json:
        print(json.dumps([_as_json(one) for one in found]))
        return 0
    for one in found:
        # Names of Gearman and Workq may have any character.
        print(f"{visible(one.pattern)}: {'; '.join(rules_of(one))}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    found = _found(arguments)
    if not found:
        return say_no(f"{visible(arguments.queue)} has no policy", arguments.json)
    if arguments.json:
        print(json.dumps(_as_json(found[0])))
        return 0
    print(f"{visible(arguments.queue)} has the policy of {visible(found[0].pattern)}:")
    for rule in rules_of(found[0]):
        print(f"  {rule}")
    return 0


def _found(arguments: argparse.Namespace) -> list[policies_pb2.Policy]:
    request = policies_pb2.ListPoliciesRequest(queue=arguments.queue or "")
    reply = _ask(arguments, lambda stub: stub.List(request, timeout=REPLY_TIMEOUT_S))
    return list(reply.policies)


def _as_json(one: policies_pb2.Policy) -> dict[str, Any]:
    """Return all fields; null for a rule that is not set."""
    found: dict[str, Any] = {
        field.name: getattr(one, field.name) or None for field in one.DESCRIPTOR.fields
    }
    has_limit = one.jobs_max or one.bytes_max
    found["when_full"] = _FULL_WORDS[one.when_full] if has_limit else None
    return found


def rules_of(one: policies_pb2.Policy) -> list[str]:
    """Return each rule of a policy in words."""
    rules = []
    if one.attempts_max:
        then = "fails" if is_of(one.pattern, GEARMAN) else "is buried"
        then = f"moves to {one.dead}" if one.dead else then
        rules.append(f"after {_counted(one.attempts_max, 'attempt')} a job {then}")
    limits = [_counted(one.jobs_max, "job")] if one.jobs_max else []
    limits += [_counted(one.bytes_max, "byte")] if one.bytes_max else []
    if limits:
        rules.append(f"at most {' and '.join(limits)}, then {_FULL_RULES[one.when_full]}")
    if one.ttr_s:
        rules.append(f"without a TTR, a job has {one.ttr_s} s")
    if one.priority:
        rules.append(f"without a priority, a job has {one.priority}")
    for state, time_us in (("buried", one.retain_buried_us), ("delayed", one.retain_delayed_us)):
        if time_us:
            rules.append(f"a job is deleted when it has been {state} for {time_words(time_us)}")
    if one.unique_window_us:
        window = time_words(one.unique_window_us)
        rules.append(f"a put of the same body within {window} makes no job")
    if one.rate:
        rules.append(f"{one.rate} jobs in {time_words(one.rate_period_us)} are given out at most")
    return rules or ["no rule"]


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def time_words(time_us: int) -> str:
    """Return a time in the largest unit that makes it a whole number."""
    for unit, its_us in _UNITS:
        if time_us % its_us == 0:
            return f"{time_us // its_us} {unit}"
    return f"{time_us} us"


def _ask(
    arguments: argparse.Namespace,
    call: Callable[[policies_pb2_grpc.PoliciesStub], T],
    look: str = "",
) -> T:
    return ask(arguments, policies_pb2_grpc.PoliciesStub, call, look)
