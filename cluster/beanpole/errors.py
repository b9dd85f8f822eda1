"""The error tree: what may be raised across package borders, split by whose fault it is.

Expected outcomes of commands (NOT_FOUND, TIMED_OUT, ...) are values and do not belong here.
"""


class BeanpoleError(Exception):
    """Base of every error that Beanpole raises on purpose."""


class ConfigurationError(BeanpoleError):
    """The operator's configuration is wrong; the message names the field and what is allowed."""


class ProtocolError(BeanpoleError):
    """A peer or a client sent bytes that no correct implementation sends."""


class StorageError(BeanpoleError):
    """The files on disk cannot be used; the message names the file and says what to do."""


class Damaged(StorageError):
    """A file has bytes that were not written like this, before its tail."""


class WrongIdentity(StorageError):
    """A file belongs to another cluster, another node or another list of members."""


class UnknownVersion(BeanpoleError):
    """A file, an entry or a peer is of a version that this program does not know."""


class ReplicationError(BeanpoleError):
    """The Raft library is not the pinned one, or it broke a rule that must never break."""


class ClientError(BeanpoleError):
    """A command of Beanpole's own client failed; the message holds the server's words."""


class LogFailed(StorageError):
    """A write or sync of the write-ahead log failed, so nothing more can be promised."""


class OutcomeUnknown(ClientError):
    """The connection ended before the reply: the command took effect once or not at all."""
