"""The Beanpole daemon, one process per node: wiring, frontends, administration, metrics."""

# It sets gRPC's resolver; many modules here import grpc before anything else.
import beanpole  # noqa: F401

# Before the modules of a program, whose import takes a second.
import beanpoled.first_process  # noqa: F401
