"""The Beanpole daemon, one process per node: wiring, frontends, administration, metrics."""

import os

# gRPC writes a line of its own to standard error for each failed handshake, which any host can
# cause at any rate. It reads this variable when it is imported. Failures of calls are reported by
# their callers.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
