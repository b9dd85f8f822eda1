"""A node whose clients speak Workq, on the stage."""

from beanpole import commands as c
from beanpole.core.jobs.job import DONE
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies
from beanpoled.frontends.workq.connection import WorkqConnection
from tests.unit.node.settling import settle
from tests.unit.node.stage import Port, Stage

MS = 1_000
JOB = b"6ba7b810-9dad-41d1-80b4-00c04fd430c4"
OTHER = b"0253b98a-025b-4730-b795-47ea082493e8"
JOB_ID = bytes.fromhex(JOB.replace(b"-", b"").decode())
ADD = b"add %b q 1000 60000 4\r\npong\r\n" % JOB
RUN = b"run %b q 1000 5000 4\r\npong\r\n" % JOB
LEASED = b"+OK 1\r\n%b q 1000 4\r\npong\r\n" % JOB
OK, TIMEOUT, NOT_FOUND = replies.OK, replies.TIMEOUT, replies.NOT_FOUND
# The session of a Workq client at another node.
OTHERS = 1


def ended(success: int, result: bytes) -> bytes:
    """Return the reply of run and result."""
    return b"+OK 1\r\n%b %d %d\r\n%b\r\n" % (JOB, success, len(result), result)


class Client:
    """A Workq client of the node on the stage."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends["workq"].connected(self.port)
        assert isinstance(connection, WorkqConnection)
        self.connection = connection

    def send(self, data: bytes) -> bytes:
        """Send requests, and return the replies before anything is committed."""
        self.connection.received(data)
        self.scene.run()
        return self.port.take()

    def ask(self, data: bytes) -> bytes:
        """Send requests, commit them, and return the replies."""
        answered = self.send(data)
        settle(self.scene)
        return answered + self.port.take()

    def state(self) -> bytes:
        """Return the state of the job, as `inspect job` shows it."""
        reply = self.ask(b"inspect job %b\r\n" % JOB)
        return reply.partition(b"\r\nstate ")[2].partition(b"\r\n")[0]


class Scene(Stage):
    """A leader whose clients speak Workq."""

    def __init__(self, **overrides: object) -> None:
        super().__init__(**overrides)  # type: ignore[arg-type]
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 4),)))
        self.lead()
        self.come_up()
        self.batch("n1", 1, first=True)  # its NODE_UP
        settle(self)
        self.number = 1
        self.others((c.OPEN, OTHERS), (c.SET_PROTOCOL, OTHERS, WORKQ))

    def after(self, us: int) -> None:
        """Let time pass, and commit everything meanwhile."""
        for _ in range(us // (50 * MS)):
            self.pass_us(50 * MS)
            self.commit()
        settle(self)

    def others(self, *commands: c.Command) -> None:
        """Apply a batch of n1, whose session 1 is a Workq client's."""
        self.number += 1
        self.batch("n1", self.number, *commands)
        settle(self)

    def commit_own(self, *before: c.Command, after_us: int = 0, is_own_later: bool = False) -> None:
        """Apply commands of n1 and then, in the same entry, the batches that this node has sent.

        Args:
            before: the commands.
            after_us: the cluster time that has passed since the last entry.
            is_own_later: whether the batches of this node are not in the entry.
        """
        self.replica.proposed.clear()
        self.number += 1
        own = [
            (0, self.node.origin.incarnation, number, c.pack_commands(batch.commands))
            for number, batch in sorted(self.node.origin._numbered.items())
        ]
        sections = [(1, 1, self.number, c.pack_commands(before))]
        sections += [] if is_own_later else own
        now_us = self.node.context.machine.queue.now_us + after_us
        self.apply(c.encode_entry(0, now_us, 0, sections))
        self.run()

    def finish(self, state: int = DONE, result: bytes = b"r") -> c.Command:
        """Return the command of a worker at n1 that ends the job."""
        return (c.FINISH_NAMED, OTHERS, JOB_ID, state, result)

    def deleting(self) -> bool:
        """Whether the last command sent by this node deletes a job."""
        batches = list(self.node.origin._numbered.values())
        return bool(batches) and batches[-1].commands[-1][0] == c.DELETE

    @property
    def listened(self) -> list[int]:
        return list(self.node.context.machine.queue.effects.listened)
