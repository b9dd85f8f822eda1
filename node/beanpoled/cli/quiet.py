"""Import gRPC so that it prints no log lines, about nodes that are down or failed handshakes.

The errors of its calls say the same. gRPC reads the variable when it is imported, so this module
must be the first that imports it; a node keeps the log lines of its own gRPC.
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
