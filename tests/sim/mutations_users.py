"""Planted defects of users: rights that are checked, tokens, sessions, images, waits, quotas.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all;
some of them have users.
"""

from collections.abc import Iterator
from typing import Any, Final

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core import machine as machines
from beanpole.core.image import qless as qless_image
from beanpole.core.image import users as image
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.quotas import Quotas, Usage
from beanpole.core.operations import permission, qless, qless_permission, users
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.qless.job import QlessJob, Recurring
from beanpole.core.qless.tables import Tables
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState
from beanpole.core.users import PUT, WORK, User, Users, locks_out
from beanpole.protocol.gearman import admin as gearman_admin
from beanpoled.frontends.client_rates import ClientRates, Meter
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.requests import RequestConnection
from beanpoled.frontends.user_changes import UserChanges
from beanpoled.origin.batches import Client
from tests.sim.mutant import Mutant, in_lives
from tests.sim.mutations import Patch, nothing
from tests.sim.schedules_qless import data_that_grows_is_counted


def _operation(code: int) -> ClientOperation:
    operation = OPERATIONS[code]
    assert isinstance(operation, ClientOperation)
    return operation


def delete_needs_no_right() -> list[Patch]:
    """Every user may delete every job."""
    return [(_operation(c.DELETE), "rights", 0)]


def one_tube_is_enough() -> list[Patch]:
    """A user with any right may reserve any job by its id."""
    allows = permission.allows

    def wrong(
        machine: MachineState, origin: Origin, operation: ClientOperation, command: c.Command
    ) -> bool:
        session = origin.sessions[command[1]]
        user = machine.users.of(session.user, session.token)
        if command[0] == c.RESERVE_JOB and user.rights:
            return True
        return allows(machine, origin, operation, command)

    return [(machines, "allows", wrong)]


def tokens_are_never_dropped() -> list[Patch]:
    """A dropped token still authenticates its user."""
    change = vars(Users)["change"]
    known: dict[int, dict[bytes, bytes]] = {}

    def changed(self: Users, rows: dict[bytes, User]) -> None:
        owners = known.setdefault(id(self), {})
        owners.update((token, user.name) for user in rows.values() for token in user.tokens)
        change(self, rows)

    def wrong(machine: MachineState, origin: Origin, command: c.Command) -> int:
        name = known.get(id(machine.users), {}).get(command[3], b"")
        if machine.users.owner(command[3]) is None and name in machine.users.rows:
            command = (*command[:2], name, b"")
        return users.as_user(machine, origin, command)

    return [(Users, "change", changed), (_operation(c.AS_USER), "handler", wrong)]


def any_token_is_told_right() -> list[Patch]:
    """A node reports every token as valid."""
    authenticated = vars(RequestConnection)["_authenticated"]

    def wrong(self: RequestConnection, result: int, accepted: bytes, refused: bytes) -> None:
        authenticated(self, c.OK, accepted, refused)

    return [(RequestConnection, "_authenticated", wrong)]


def resumed_is_nobodys() -> list[Patch]:
    """A resumed session has lost its user."""
    attach = vars(MachineState)["attach"]

    def wrong(self: MachineState, session: Session, origin: Origin, fresh: Session) -> None:
        attach(self, session, origin, fresh)
        session.user = session.token = b""

    return [(MachineState, "attach", wrong)]


def secrets_are_enough() -> list[Patch]:
    """Any user with the secret of a session resumes it, as its user."""
    handler = _operation(c.RESUME).handler

    def wrong(machine: MachineState, origin: Origin, command: c.Command) -> Any:
        kept = machine.resumable.get(command[2])
        if kept is not None:
            origin.sessions[command[1]].user = kept.user
        return handler(machine, origin, command)

    return [(_operation(c.RESUME), "handler", wrong)]


def longest_pattern_counts() -> list[Patch]:
    """Of several matching patterns only the longest gives rights."""
    on = vars(User)["on"]

    def wrong(self: User, queue: bytes) -> int:
        rights = dict(self.rights)
        if queue in rights:
            return rights[queue]
        for length in range(len(queue), 0, -1):
            bits = rights.get(queue[:length] + ANY, 0)
            if bits:
                return bits
        return int(on(self, queue))

    return [(User, "on", wrong)]


def narrower_is_wider() -> list[Patch]:
    """A user keeps its old rights when new ones are set."""
    handler = _operation(c.SET_USER).handler

    def wrong(machine: MachineState, origin: Origin, command: c.Command) -> Any:
        before = machine.users.rows.get(command[2])
        result = handler(machine, origin, command)
        after = machine.users.rows.get(command[2])
        if result == c.OK and before is not None and after is not None:
            both = dict(before.rights) | dict(after.rights)
            user = User(after.name, after.tokens, tuple(sorted(both.items())))
            machine.users.change({**machine.users.rows, after.name: user})
        return result

    return [(_operation(c.SET_USER), "handler", wrong)]


def all_are_locked_out() -> list[Patch]:
    """The last administrator can be removed."""
    return [(users, "locks_out", lambda rows, rules: False)]


def rules_lock_nobody_out() -> list[Patch]:
    """The last administrator can be removed while rules take the right from those without one."""
    return [(users, "locks_out", lambda rows, rules: locks_out(rows, ()))]


def image_forgets_tokens() -> list[Patch]:
    """Users in an image have no tokens."""

    def wrong(found: list[tuple[bytes, User]], rules: Any) -> Iterator[Any]:
        if found:
            yield [image.USERS, [[name, user.birth, (), user.rights] for name, user in found]]
        if rules:
            yield [image.RULES, rules]

    return [(image, "_listed", wrong)]


def image_forgets_rules() -> list[Patch]:
    """Rules are not in an image."""
    listed = image._listed
    return [(image, "_listed", lambda found, rules: listed(found, ()))]


def ended_rights_are_not_told() -> list[Patch]:
    """A client goes on waiting when its right has ended."""
    return [(UserChanges, "_look_on", nothing)]


def one_job_beyond_the_quota() -> list[Patch]:
    """A user has one job more than its quota."""

    def wrong(self: Usage, size: int) -> bool:
        if 0 < self.jobs_max < self.jobs:
            return False
        return not 0 < self.bytes_max < self.bytes + size

    return [(Usage, "admits", wrong)]


def gone_jobs_count() -> list[Patch]:
    """A job still counts for its user when it is gone."""
    return [(Quotas, "forget", nothing)]


def image_forgets_whose_jobs() -> list[Patch]:
    """An image does not have the user for whom a job counts."""
    return [(Quotas, "of_job", lambda self, job_id: b"")]


def qless_is_beside_quotas() -> list[Patch]:
    """Jobs of qless count for no user."""
    return [(Tables, "count", nothing)]


def larger_data_is_not_counted() -> list[Patch]:
    """A job of qless counts with the size of its first data."""
    recount = vars(Tables)["recount"]

    def wrong(self: Tables, thing: QlessJob | Recurring, is_there: bool) -> None:
        if not is_there:
            recount(self, thing, is_there)

    return [(Tables, "recount", wrong)]


def image_forgets_whose_qless_jobs() -> list[Patch]:
    """An image does not have the user for whom a job of qless counts."""
    of_job = qless_image.of_job

    def wrong(job: QlessJob) -> qless_image.Record:
        record = of_job(job)
        if job.usage is None:
            return record
        place = -len(qless_image.LONG_FIELDS)
        return (*record[: place - 1], *record[place:])

    return [(qless_image, "of_job", wrong)]


def everybody_may_pop() -> list[Patch]:
    """A job of qless is popped without the right."""
    allows = qless_permission.allows_call

    def wrong(machine: MachineState, session: Session, call: int, args: tuple[Any, ...]) -> bool:
        return call == q.POP or allows(machine, session, call, args)

    return [(qless, "allows_call", wrong)]


def puts_need_the_right_to_work() -> list[Patch]:
    """A node refuses puts of users who may put, but not work."""
    may = vars(Clients)["may"]

    def wrong(self: Clients, client: Client, rights: int, queue: bytes) -> bool:
        return bool(may(self, client, WORK if rights == PUT else rights, queue))

    return [(Clients, "may", wrong)]


def users_have_twice_their_rate() -> list[Patch]:
    """A command costs half of its time."""
    spend = vars(Meter)["spend"]

    def wrong(self: Meter, commands: int, now_us: int) -> None:
        spend(self, commands / 2, now_us)

    return [(Meter, "spend", wrong)]


def each_connection_has_the_rate() -> list[Patch]:
    """The connections of a user do not share its rate."""
    of_user = vars(ClientRates)["_of_user"]
    meters: dict[Connection, Meter] = {}

    def wrong(self: ClientRates, connection: Connection) -> Meter | None:
        shared = of_user(self, connection)
        if shared is None:
            return None
        own: Meter = meters.setdefault(connection, Meter(shared.rate))
        own.rate = shared.rate
        return own

    return [(ClientRates, "_of_user", wrong)]


def functions_need_no_right() -> list[Patch]:
    """Every user may create functions of Gearman."""
    return [(_operation(c.CREATE_QUEUE), "rights", 0)]


def wrong_tokens_are_ok() -> list[Patch]:
    """Gearman's text command `auth` is answered OK with a wrong token."""
    return [(gearman_admin, "BAD_TOKEN", gearman_admin.OK)]


USERS: Final = (
    in_lives(
        "delete_needs_no_right",
        "users: jobs are deleted without the right",
        r"done without a right",
        delete_needs_no_right,
        seed=23,
    ),
    in_lives(
        "one_tube_is_enough",
        "users: a right in one queue is one in all",
        r"done without a right",
        one_tube_is_enough,
        seed=23,
    ),
    in_lives(
        "tokens_are_never_dropped",
        "users: a dropped token makes a user",
        r"it is to become None",
        tokens_are_never_dropped,
        seed=31,
    ),
    in_lives(
        "any_token_is_told_right",
        "users: a node says that each token is right",
        r"told, and not done",
        any_token_is_told_right,
        seed=18,
    ),
    in_lives(
        "resumed_is_nobodys",
        "users: a session loses its user when it is resumed",
        r"and is b'' since|had the right|without a right",
        resumed_is_nobodys,
        seed=23,
    ),
    in_lives(
        "secrets_are_enough",
        "users: another user resumes a session",
        r"took over the session",
        secrets_are_enough,
        seed=23,
    ),
    in_lives(
        "longest_pattern_counts",
        "users: only the longest pattern gives rights",
        # The front ends ask for rights, too, so that a node may refuse it before the machine does.
        r"it had the right, and (was refused|its node refused it)|nothing of it was refused|"
        r"got no job of it",
        longest_pattern_counts,
        seed=23,
    ),
    in_lives(
        "narrower_is_wider",
        "users: a right stays when it is taken",
        r"done without a right|may not work on|the users of",
        narrower_is_wider,
        seed=26,
    ),
    in_lives(
        "all_are_locked_out",
        "users: the last administrator goes",
        r"it is to say -8",
        all_are_locked_out,
        seed=31,
    ),
    in_lives(
        "rules_lock_nobody_out",
        "users: the last administrator goes while rules shut others out",
        r"it is to say -8",
        rules_lock_nobody_out,
        seed=31,
    ),
    in_lives(
        "image_forgets_tokens",
        "users: an image forgets tokens",
        r"differs|the users of",
        image_forgets_tokens,
        seed=23,
    ),
    in_lives(
        "image_forgets_rules",
        "users: an image forgets rules",
        r"the rules of|by a rule",
        image_forgets_rules,
        seed=59,
    ),
    in_lives(
        "ended_rights_are_not_told",
        "users: a client waits on when its right has ended",
        r"waited on without a right",
        ended_rights_are_not_told,
        seed=113,
    ),
    in_lives(
        "one_job_beyond_the_quota",
        "users: a quota is one job more than it says",
        r"and put one more",
        one_job_beyond_the_quota,
        seed=31,
    ),
    in_lives(
        "gone_jobs_count",
        "users: a job that is gone counts for its user's quota",
        r"and was refused|the quotas of",
        gone_jobs_count,
        seed=26,
    ),
    in_lives(
        "image_forgets_whose_jobs",
        "users: an image forgets for whom a job counts",
        r"differs|the quotas of|and put one more",
        image_forgets_whose_jobs,
        seed=52,
    ),
    in_lives(
        "qless_is_beside_quotas",
        "users: jobs of qless count for no quota",
        r"and put one more|the quotas of",
        qless_is_beside_quotas,
        seed=26,
    ),
    Mutant(
        "larger_data_is_not_counted",
        "users: data of a qless job that changes is not counted",
        data_that_grows_is_counted,
        r"of 100 bytes, and b'second' with",
        larger_data_is_not_counted,
    ),
    in_lives(
        "image_forgets_whose_qless_jobs",
        "users: an image forgets for whom a job of qless counts",
        r"differs|the quotas of|and put one more",
        image_forgets_whose_qless_jobs,
        seed=26,
    ),
    in_lives(
        "everybody_may_pop",
        "users: a job of qless is popped without the right",
        r"done without a right",
        everybody_may_pop,
        seed=26,
    ),
    in_lives(
        "puts_need_the_right_to_work",
        "users: a node refuses a put that is allowed",
        r"nothing of it was refused|and its node refused it",
        puts_need_the_right_to_work,
        seed=32,
    ),
    in_lives(
        "users_have_twice_their_rate",
        "users: a node takes twice the commands that a user's rate allows",
        r"commands of Meter",
        users_have_twice_their_rate,
        seed=52,
    ),
    in_lives(
        "each_connection_has_the_rate",
        "users: each connection of a user has the rate that they share",
        r"commands of Meter",
        each_connection_has_the_rate,
        seed=59,
    ),
    in_lives(
        "functions_need_no_right",
        "users: a function of Gearman is created without the right",
        r"done without a right",
        functions_need_no_right,
        seed=31,
    ),
    in_lives(
        "wrong_tokens_are_ok",
        "users: a client of Gearman is told that a wrong token is right",
        r"told, and not done",
        wrong_tokens_are_ok,
        seed=26,
    ),
)
