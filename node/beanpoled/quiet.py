"""Import gRPC so that it writes no log lines of its own, about failed handshakes or lost nodes.

Any host can cause such lines at a node, at any rate; the errors of a command's calls say the same.
gRPC reads its variables when it is imported, so this module must be the first that imports it. It
removes them afterwards: programs that commands start (`up`, `work`) have the command's environment.
"""

import importlib
import os
from typing import Final

from beanpole import IS_RESOLVER_OURS, RESOLVER

_VARIABLE: Final = "GRPC_VERBOSITY"

_is_ours: Final = _VARIABLE not in os.environ
if _is_ours:
    os.environ[_VARIABLE] = "NONE"
try:
    importlib.import_module("grpc")
finally:
    if _is_ours:
        del os.environ[_VARIABLE]
    if IS_RESOLVER_OURS:
        os.environ.pop(RESOLVER, None)
