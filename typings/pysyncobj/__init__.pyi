"""Stubs of PySyncObj 0.3.17: only what `beanpole.replication.pysyncobj` and its tests use."""

from .config import FAIL_REASON as FAIL_REASON
from .config import SERIALIZER_STATE as SERIALIZER_STATE
from .config import SyncObjConf as SyncObjConf
from .syncobj import _COMMAND_TYPE as _COMMAND_TYPE
from .syncobj import _RAFT_STATE as _RAFT_STATE
from .syncobj import SyncObj as SyncObj
from .syncobj import SyncObjConsumer as SyncObjConsumer
from .syncobj import SyncObjException as SyncObjException
