"""Import gRPC so that it writes no log lines of its own, about failed handshakes or lost nodes.

Any host can cause such lines at a node, at any rate; the errors of a command's calls say the same.
gRPC reads the variable when it is imported, so this module must be the first that imports it.
"""

import importlib
import os
from typing import Final

_VARIABLE: Final = "GRPC_VERBOSITY"

if _VARIABLE not in os.environ:
    os.environ[_VARIABLE] = "NONE"
    try:
        importlib.import_module("grpc")
    finally:
        # The programs that commands start (`up`, `work`) have the environment of the command.
        del os.environ[_VARIABLE]
