"""Policies in requests and on the command line: units, keywords and refusals."""

import argparse
import asyncio
from typing import Any

import grpc
import pytest

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.pb import policies_pb2, queue_pb2
from beanpoled.cli import main
from beanpoled.cli import policy as cli_policy
from beanpoled.cli.policy import rate, rules_of, time_words
from beanpoled.cli.values import size_bytes
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.policies import PoliciesServicer, _policy, read_pattern, read_policy
from beanpoled.rpc.server import CallRefused
from tests.unit.beanpoled.test_queue_rpc import Service, run

HOUR_US = 3600 * SECOND_US


def test_all_fields_arrive_and_come_back() -> None:
    given = policies_pb2.Policy(
        pattern="mail*",
        attempts_max=3,
        dead="mail-dead",
        jobs_max=5,
        bytes_max=6,
        when_full=policies_pb2.WHEN_FULL_DROP_OLDEST,
        ttr_s=7,
        priority=8,
        retain_buried_us=9,
        retain_delayed_us=10,
        unique_window_us=11,
        rate=12,
        rate_period_us=HOUR_US,
    )
    assert all(value for _, value in given.ListFields())
    assert len(given.ListFields()) == len(given.DESCRIPTOR.fields)
    pattern, row = read_policy(given)
    assert (pattern, row.dead, row.when_full) == (b"mail*", b"mail-dead", DROP_OLDEST)
    assert _policy(pattern, row) == given


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("*", b"*"), ("a", b"a"), ("a*", b"a*"), ("gearman:a", b"\x02a")),
        *(("gearman:*", b"\x02*"), ("workq:a*", b"\x01a*"), ("gearman:a b", b"\x02a b")),
    ],
)
def test_patterns_of_all_protocols(text: str, name: bytes) -> None:
    assert read_pattern(text) == name
    assert _policy(name, Policy()).pattern == text


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        *(({"pattern": text}, "BAD_PATTERN", "pattern") for text in ("", "a*b", "**", "a b")),
        *(({"pattern": text}, "BAD_PATTERN", "pattern") for text in ("qless:a", "x:a", "\x02a")),
        ({"pattern": "gearman:a*b"}, "BAD_PATTERN", "pattern"),
        ({"pattern": "a", "attempts_max": 1, "dead": "b*"}, "BAD_TUBE", "dead"),
        ({"pattern": "a", "dead": "b"}, "NO_ATTEMPTS", "dead"),
        ({"pattern": "a", "when_full": 1}, "NO_LIMIT", "when_full"),
        ({"pattern": "a", "jobs_max": 1, "when_full": 7}, "OUT_OF_RANGE", "when_full"),
        ({"pattern": "a", "jobs_max": 2**32}, "OUT_OF_RANGE", "jobs_max"),
        ({"pattern": "a", "unique_window_us": 25 * HOUR_US}, "OUT_OF_RANGE", "unique_window_us"),
        ({"pattern": "a", "rate": 5}, "HALF_A_RATE", "rate"),
        ({"pattern": "a", "rate": 1, "rate_period_us": 999}, "OUT_OF_RANGE", "rate_period_us"),
        ({"pattern": "workq:a", "attempts_max": 1}, "OTHER_PROTOCOL", "attempts_max"),
        ({"pattern": "gearman:a", "attempts_max": 1, "dead": "b"}, "OTHER_PROTOCOL", "dead"),
        ({"pattern": "workq:a", "unique_window_us": 1}, "OTHER_PROTOCOL", "unique_window_us"),
        ({"pattern": "workq:a", "priority": 1}, "OTHER_PROTOCOL", "priority"),
        ({"pattern": "workq:*", "ttr_s": 1}, "OTHER_PROTOCOL", "ttr_s"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, Any], reason: str, field: str) -> None:
    with pytest.raises(CallRefused) as refused:
        read_policy(policies_pb2.Policy(**fields))
    assert (refused.value.reason, refused.value.field) == (reason, f"policy.{field}")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (
            "gearman:",
            "'gearman:' has no name after the colon; all queues of this protocol are 'gearman:*'",
        ),
        (
            "workq:",
            "'workq:' has no name after the colon; all queues of this protocol are 'workq:*'",
        ),
        ("workq:a b", "'workq:a b' matches no queue: names have A-Z a-z 0-9 _ . -"),
        ("workq:a b*", "'workq:a b*' matches no queue: names have A-Z a-z 0-9 _ . -"),
    ],
)
def test_a_pattern_that_matches_no_queue_is_refused(pattern: str, words: str) -> None:
    """One that an older program has accepted can still be dropped."""
    with pytest.raises(CallRefused) as refused:
        read_policy(policies_pb2.Policy(pattern=pattern))
    assert (refused.value.reason, str(refused.value)) == ("BAD_PATTERN", words)
    assert _policy(read_pattern(pattern), Policy()).pattern == pattern


@pytest.mark.parametrize("pattern", ["*", "a", "workq:*", "workq:a.b*", "gearman:*", "gearman:a b"])
def test_a_pattern_that_may_match_a_queue_is_accepted(pattern: str) -> None:
    assert read_policy(policies_pb2.Policy(pattern=pattern)) == (read_pattern(pattern), Policy())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("100/s", (100, SECOND_US)), ("5/10m", (5, 600 * SECOND_US)), ("1/500ms", (1, 500_000))),
        *(("1/h", (1, HOUR_US)), ("2/3", (2, 3 * SECOND_US)), ("1/2d", (1, 48 * HOUR_US))),
    ],
)
def test_rates_have_units(text: str, found: tuple[int, int]) -> None:
    assert rate(text) == found


def test_sizes_have_units() -> None:
    found = [size_bytes(text) for text in ("5000", "1KiB", "64MiB", "2GiB")]
    assert found == [5000, 1024, 64 * 1024**2, 2 * 1024**3]


@pytest.mark.parametrize("text", ["", "100", "/s", "x/s", "1/", "1/x", "1/ms", "-1/s", "1/2x"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no (rate|time)"):
        rate(text)


@pytest.mark.parametrize("text", ["0/s", "1000001/s", "5/10ms", "5/31d", "5/0s"])
def test_what_is_no_allowed_rate(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError, match="1 to 1000000 jobs in a period of 100 ms to 30 d"
    ):
        rate(text)


@pytest.mark.parametrize("text", ["", "MiB", "1MB", "-1", "1.5GiB", "9" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        size_bytes(text)


@pytest.mark.parametrize("text", ["9" * 15 + "GiB", "1000000000GiB"])
def test_a_size_that_no_call_can_carry(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"is above {'9' * 18} bytes"):
        size_bytes(text)


def test_every_rule_has_words() -> None:
    full = policies_pb2.WHEN_FULL_DROP_OLDEST
    rules: dict[str, dict[str, Any]] = {
        "after 3 attempts a job is buried": {"attempts_max": 3},
        "after 1 attempt a job fails": {"pattern": "gearman:*", "attempts_max": 1},
        "at most 5 jobs, then a put is refused": {"jobs_max": 5},
        "at most 5 jobs and 6 bytes, then a put drops the oldest ready job": {
            "jobs_max": 5,
            "bytes_max": 6,
            "when_full": full,
        },
        "without a TTR, a job has 7 s": {"ttr_s": 7},
        "without a priority, a job has 8": {"priority": 8},
        "a job is deleted when it has been buried for 1 h": {"retain_buried_us": HOUR_US},
        "a job is deleted when it has been delayed for 1500 ms": {"retain_delayed_us": 1_500_000},
        "a put of the same body within 90 min makes no job": {"unique_window_us": 3 * HOUR_US // 2},
        "5 jobs in 1 d are given out at most": {"rate": 5, "rate_period_us": 24 * HOUR_US},
    }
    for words, fields in rules.items():
        assert rules_of(policies_pb2.Policy(**{"pattern": "a", **fields})) == [words]
    assert rules_of(policies_pb2.Policy(pattern="a")) == ["no rule"]
    assert time_words(1) == "1 us"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"jobs_max": 2**32}, "jobs_max = 4294967296 is not allowed: 1 to 4294967295, or left out"),
        ({"rate": 10**6 + 1}, "rate = 1000001 is not allowed: 1 to 1000000, or left out"),
    ],
)
def test_the_refusal_of_a_number_names_what_is_allowed(fields: dict[str, int], words: str) -> None:
    """It offered 0 for none, which the command line refuses."""
    with pytest.raises(CallRefused) as refused:
        read_policy(policies_pb2.Policy(pattern="f", **fields))  # type: ignore[arg-type]
    assert str(refused.value) == words


RANGE = "'0' is not a whole number from 1 to 4294967295"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--default-priority", f"{RANGE}; without this option there is no default"),
        ("--jobs-max", f"{RANGE}; without this option there is no limit"),
        ("--attempts", f"{RANGE}; without this option there is no limit"),
        ("--bytes-max", "'0' is not above 0; without this option there is no limit"),
        ("--default-ttr", "'0' is not above 0; without this option there is no default"),
        ("--retain-buried", "'0' is not above 0; without this option they are kept"),
        ("--unique", "'0' is not above 0; without this option every put makes a job"),
    ],
)
def test_the_refusal_of_0_says_what_is_so_without_the_option(
    option: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["policy", "set", "f", option, "0"])
    assert words in capsys.readouterr().err


def test_a_queue_without_a_policy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json nothing is on standard output, as of all that is not there."""
    monkeypatch.setattr(cli_policy, "_ask", lambda *_: policies_pb2.ListPoliciesReply())
    assert main(["policy", "show", "mail"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("mail has no policy\n", "")
    assert main(["policy", "show", "mail", "--json"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "mail has no policy\n")


@pytest.mark.parametrize("line", [["list"], ["show", "resize"]])
def test_a_pattern_does_not_move_the_cursor(
    line: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = policies_pb2.Policy(pattern="gearman:\x1b[31m\nmail*", jobs_max=5)
    reply = policies_pb2.ListPoliciesReply(policies=[one])
    monkeypatch.setattr(cli_policy, "_ask", lambda *_: reply)
    assert main(["policy", *line]) == 0
    assert r"gearman:\x1b[31m\nmail*:" in capsys.readouterr().out


def test_puts_of_grpc_under_a_policy() -> None:
    """The tube's defaults fill missing fields; a full tube differs from a full cluster."""
    rules = Policy(jobs_max=3, ttr_s=300, priority=9, unique_window_us=HOUR_US)

    async def test(service: Service) -> None:
        stage = service.stage
        stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
        stage.apply_sections((1, 1, 1, ((c.OPEN, 1), (c.SET_POLICY, 1, b"ruled", *rules))))
        jobs = [
            queue_pb2.PutJob(tube="ruled", body=b"1"),
            queue_pb2.PutJob(tube="ruled", body=b"1"),
            queue_pb2.PutJob(tube="ruled", body=b"2", priority=0, ttr_s=5),
            queue_pb2.PutJob(tube="ruled", body=b"3"),
            queue_pb2.PutJob(tube="ruled", body=b"4"),
            queue_pb2.PutJob(tube="free", body=b"1"),
        ]
        call = asyncio.ensure_future(service.stub.Put(queue_pb2.PutRequest(jobs=jobs)))
        await service.apply_next()
        inserted, duplicate = queue_pb2.PUT_OUTCOME_INSERTED, queue_pb2.PUT_OUTCOME_DUPLICATE
        assert [(one.job_id, one.outcome) for one in (await call).results] == [
            *((1, inserted), (1, duplicate), (2, inserted), (3, inserted)),
            *((0, queue_pb2.PUT_OUTCOME_QUEUE_FULL), (4, inserted)),
        ]
        found = stage.node.context.machine.queue.jobs
        shown = [(found[job].rank, found[job].ttr_us // SECOND_US) for job in range(1, 5)]
        assert shown == [(9, 300), (0, 5), (9, 300), (0, 60)]

    run(test)


class Ended(Exception):
    """The status and the words of a refused call."""


class Refusing:
    """The context of a call that is refused."""

    async def abort(self, code: grpc.StatusCode, words: str, _: object) -> None:
        raise Ended(code, words)


def test_an_alias_cannot_have_a_policy() -> None:
    async def test(service: Service) -> None:
        stage = service.stage
        stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
        commands = ((c.OPEN, 1), (c.SET_ALIAS, 1, b"\x02thumbs", b"thumbs"))
        stage.apply_sections((1, 1, 1, commands))
        servicer = PoliciesServicer(stage.node, Callers(stage.node))
        policy = policies_pb2.Policy(pattern="gearman:thumbs", jobs_max=3)
        context: Any = Refusing()
        with pytest.raises(Ended) as ended:
            await servicer.Set(policies_pb2.SetPolicyRequest(policy=policy), context)
        words = "'gearman:thumbs' is an alias of 'thumbs': name that queue"
        assert ended.value.args == (grpc.StatusCode.INVALID_ARGUMENT, words)

    run(test)


def test_a_dead_tube_cannot_be_an_alias() -> None:
    """Jobs cannot move there: the command printed that they do, and they were buried."""

    async def test(service: Service) -> None:
        stage = service.stage
        stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
        stage.apply_sections((1, 1, 1, ((c.OPEN, 1), (c.SET_ALIAS, 1, b"mail", b"\x02mail"))))
        servicer = PoliciesServicer(stage.node, Callers(stage.node))
        policy = policies_pb2.Policy(pattern="work", attempts_max=3, dead="mail")
        context: Any = Refusing()
        with pytest.raises(Ended) as ended:
            await servicer.Set(policies_pb2.SetPolicyRequest(policy=policy), context)
        words = (
            "dead: 'mail' is an alias of 'gearman:mail', where no job of beanstalk can move: "
            "name a tube that is no alias"
        )
        assert ended.value.args == (grpc.StatusCode.INVALID_ARGUMENT, words)

    run(test)


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("gearmann:a", "begins with no protocol"),
        ("qless:a", "which has no policies but throttles of its own"),
        ("a b", "'a b' is no name of a tube"),
        ("x" * 201, "there are at most 200"),
    ],
)
def test_no_policy_counts_for_a_name_that_no_queue_has(queue: str, words: str) -> None:
    async def test(service: Service) -> None:
        servicer = PoliciesServicer(service.stage.node, Callers(service.stage.node))
        context: Any = Refusing()
        with pytest.raises(Ended) as ended:
            await servicer.List(policies_pb2.ListPoliciesRequest(queue=queue, local=True), context)
        assert ended.value.args[0] == grpc.StatusCode.INVALID_ARGUMENT
        assert words in ended.value.args[1]

    run(test)


def test_an_alias_has_the_policy_of_its_queue() -> None:
    async def test(service: Service) -> None:
        stage = service.stage
        stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
        commands = (
            (c.OPEN, 1),
            (c.SET_ALIAS, 1, b"\x02thumbs", b"thumbs"),
            (c.SET_POLICY, 1, b"thumbs", *Policy(jobs_max=3)),
            (c.SET_POLICY, 1, b"\x02*", *Policy(jobs_max=5)),
        )
        stage.apply_sections((1, 1, 1, commands))
        servicer = PoliciesServicer(stage.node, Callers(stage.node))
        found = {}
        no_context: Any = None  # a call that asks for `local` needs none
        for queue in ("gearman:thumbs", "thumbs", "gearman:others"):
            request = policies_pb2.ListPoliciesRequest(queue=queue, local=True)
            (one,) = (await servicer.List(request, no_context)).policies
            found[queue] = one.pattern
        assert found == {
            "gearman:thumbs": "thumbs",
            "thumbs": "thumbs",
            "gearman:others": "gearman:*",
        }

    run(test)
