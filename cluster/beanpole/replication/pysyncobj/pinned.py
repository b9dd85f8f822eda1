"""The pinned version of the library, and every private name of it that the adapter uses.

The library does not guarantee these names, so its files are compared by hash at startup: another
version stops the node before it can touch the log.
"""

import hashlib
from pathlib import Path
from typing import Final

import pysyncobj.version

from beanpole.errors import ReplicationError

VERSION: Final = "0.3.17"

# SHA-256 of the library's files that are loaded into this process. The transports, the pollers and
# the utilities are replaced and never run, but they are imported, so they are pinned as well.
FILES: Final[dict[str, str]] = {
    "__init__.py": "4966a9dd893542b1b0e0fcef3d2ea44f2f40919d66b684992e5511be7503c036",
    "config.py": "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
    "dns_resolver.py": "4b88da2b45e20fbb299fb7a21f2595369b6314700b687fb8858891999bce14e0",
    "encryptor.py": "db20725465efdfc6d7a3b5b2112f53bc5426d36c56312ebdf5fbcf05423a7c19",
    "fast_queue.py": "8477fe5fdf36d9766df933310d3d66ee953d1afc195b1e6482b3a1498fc517bd",
    "journal.py": "9cf1eaf6acc704581a4cf7d3de330a404403913107adc91c929778b7e3f35edf",
    "monotonic.py": "d116df70e1f81bcab1fb89191fe2fe18486bc25187401d73fd6101cfe686e0a3",
    "node.py": "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    "pickle.py": "e9327780738065cec5d600484b936c91e7c13875206cb584d5ff7f5d0dc9c474",
    "poller.py": "f69ac749fb410670282fd9520c5805ffc684c8a5f762a927127753d9be8551e6",
    "serializer.py": "4d39fde2f15000ad8f507ec229ebd4f6a86371b6f84d4dc1439a9cccd52857ee",
    "syncobj.py": "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    "tcp_connection.py": "7784ed8da031369fe36f805cb186a2e94a3bd6f10fed2dd59c8cc3713fd6331c",
    "tcp_server.py": "bde2f216c1a585029188d0438b44762e2e797dfc53bbce387839daaa46b9a60d",
    "transport.py": "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
    "version.py": "0b8426a8b52ecf874193897d26c4214acbd85335145ea9ff17e27a22b1132943",
}

# The private names, all of `SyncObj`. Attributes that are read, and some of them written:
ATTRIBUTES: Final = (
    "raftCurrentTerm",
    "raftState",
    "raftLeader",
    "raftCommitIndex",  # written: after a snapshot is loaded, and by `commit_path`
    "raftLastApplied",  # written: by `commit_path`
    "raftNextIndex",  # written: B4, B7, F8, and by `commit_path`
    "raftMatchIndex",  # written: by `acks` and `commit_path`
    "raftElectionDeadline",  # written: C3, C4, C5
    "transferInProgress",
    "newAppendEntriesTime",  # written: appends are sent at once instead of with the next period
    "needLoadDumpFile",  # written: the dump is loaded before the first tick
    "noopIDx",
    "connectedNodes",
    "lastResponseTime",  # written: when a member answers
)
# Methods that are called.
CALLED: Final = ("loadDumpFile", "sendAppendEntries")
# Methods that are replaced by overriding the mangled name.
REPLACED: Final = ("applyLogEntries", "doApplyCommand", "tryLogCompaction")
# The library's role numbers.
FOLLOWING: Final = 0
CANDIDATE: Final = 1
LEADING: Final = 2
# Names of the module `pysyncobj.syncobj` that `seam.py` replaces.
GLOBALS: Final = (
    "PIPE_NOTIFIER_ENABLED",
    "Serializer",
    "createJournal",
    "createPoller",
    "monotonicTime",
    "os",
    "pickle",
    "random",
)


def check(directory: Path | None = None) -> None:
    """Compare the installed library with the pinned one.

    Raises:
        ReplicationError: it has another version, or one of its files was changed.
    """
    if pysyncobj.version.VERSION != VERSION:
        raise ReplicationError(
            f"PySyncObj {pysyncobj.version.VERSION} is installed; Beanpole needs exactly {VERSION}"
            f" (pip install pysyncobj=={VERSION})"
        )
    if directory is None:
        found = pysyncobj.version.__file__
        assert found is not None, "the library has no file"
        directory = Path(found).parent
    for name, expected in FILES.items():
        digest = hashlib.sha256((directory / name).read_bytes()).hexdigest()
        if digest != expected:
            raise ReplicationError(
                f"{directory / name} is not the file of PySyncObj {VERSION}"
                f" (pip install --force-reinstall pysyncobj=={VERSION})"
            )
