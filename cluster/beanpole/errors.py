"""The exceptions that may cross package borders, classified by the party at fault.

Expected outcomes of commands (NOT_FOUND, TIMED_OUT, ...) are values and do not belong here.
"""


class BeanpoleError(Exception):
    """Base of every error that Beanpole raises on purpose."""


class ConfigurationError(BeanpoleError):
    """The operator's configuration is wrong; the message names the field and the allowed values."""


class ProtocolError(BeanpoleError):
    """A peer or a client sent bytes that no correct implementation sends."""


class StorageError(BeanpoleError):
    """The files on disk cannot be used; the message names the file and the remedy."""


class Damaged(StorageError):
    """A file is corrupt before its tail: it has bytes that were never written there."""


class WrongIdentity(StorageError):
    """A file belongs to another cluster, another node or another list of members."""


class UnknownVersion(BeanpoleError):
    """A file, an entry or a peer has a version that this program does not support."""


class ReplicationError(BeanpoleError):
    """The Raft library is not the pinned version, or it violated an invariant."""


class ClientError(BeanpoleError):
    """A command of Beanpole's own client failed; the message quotes the server's reply."""


class LogFailed(StorageError):
    """A write or sync of the write-ahead log failed; nothing further is durable."""


class OutcomeUnknown(ClientError):
    """The connection ended before the reply: the command took effect once or not at all."""
