"""The Beanpole library: the replicated state machine, its log, its protocols and a client.

It never imports the daemon (`beanpoled`).
"""

import os
from typing import Final

# gRPC's own resolver waits for a DNS server that is silent, even with a name of the hosts file;
# that of the system, which all other connections use, does not. gRPC reads the variable when it is
# imported, so it is set here: before any module of this package is.
RESOLVER: Final = "GRPC_DNS_RESOLVER"
IS_RESOLVER_OURS: Final = RESOLVER not in os.environ
if IS_RESOLVER_OURS:
    os.environ[RESOLVER] = "native"

VERSION: Final = "0.4.0.dev0"
