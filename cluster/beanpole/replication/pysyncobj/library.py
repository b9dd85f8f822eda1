"""The classes that inherit from the library's: what of it is overridden, and nothing else.

They stand apart because compiling gains little for a class that inherits from an interpreted one.
What is known of the library's state is in `core`.
"""

import zlib
from collections.abc import Callable
from typing import cast

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.serializer import Serializer
from pysyncobj.transport import Transport

from beanpole.replication.pysyncobj.journal import Entry
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.transport_base import TransportBase

_OURS_NUMBER = OURS[0]


class Member(int, Node):
    """A member of the cluster as the library names it: a number made of its name.

    The library keeps members in sets and dicts. With the hash of a str, the order of its sends
    would depend on PYTHONHASHSEED, and no simulated run could be repeated. A number is compared
    and hashed without the interpreter, some forty times for each entry.
    """

    # In place of a property of the library: a plain attribute of each member.
    id: str = None  # type: ignore[assignment]

    def __new__(cls, name: str) -> "Member":
        return super().__new__(cls, zlib.crc32(name.encode()))

    def __init__(self, name: str) -> None:
        self.__dict__["id"] = name

    __repr__, __str__ = Node.__repr__, Node.__str__


class Library(SyncObj):
    """The overridden parts of the library."""

    def __init__(
        self,
        me: Member,
        others: list[Member],
        conf: SyncObjConf,
        transport: TransportBase,
        before_apply: Callable[[], None],
        apply: Callable[[bytes], None],
    ) -> None:
        self._beanpole_before_apply = before_apply
        self._beanpole_apply = apply
        # It asks for the methods of its transport, not for its class.
        super().__init__(me, others, conf=conf, transport=cast(Transport, transport))

    def _SyncObj__applyLogEntries(self) -> bool:
        # The library applies first and sends afterwards; the followers can do without that wait.
        self._beanpole_before_apply()
        return bool(super()._SyncObj__applyLogEntries())

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        # H2: the library unpickles commands here. I2: an exception in `apply` would be retried
        # for ever; it leaves the tick instead, and the replica stops the node.
        if command[0] == _OURS_NUMBER:
            self._beanpole_apply(command)

    def _SyncObj__tryLogCompaction(self) -> None:
        # F1, F4, F6: snapshots are made, published and trimmed by `snapshots.py`.
        return

    def _checkCommandsToApply(self) -> None:
        # Entries are proposed by `Core.append`; the library's queue and its forwarding of
        # commands to the leader (which loses them silently) stay empty.
        return


class SerializerBase(Serializer):
    """The library's serializer without any of its work: the base of `snapshots.Dump`."""

    def __init__(self) -> None:
        super().__init__(None, 1, False, None, None, None)

    def deserialize(self) -> tuple[None, Entry, Entry, set[Node]]:
        """Return what the library asks for; overridden."""
        raise AssertionError("nothing to load")

    def getTransmissionData(self, transmissionID: Node) -> None:
        """Return None: the library then sends a message that `transport.py` swallows (F8)."""
        return

    def setTransmissionData(self, data: object) -> bool:
        """Refuse: snapshots do not travel in appends (B2, F5)."""
        return False

    def cancelTransmisstion(self, id: Node) -> None:
        """Do nothing: there are no transmissions."""
