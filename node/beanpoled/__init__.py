"""The Beanpole daemon, one process per node: wiring, frontends, administration, metrics."""

# It sets gRPC's resolver; many modules here import grpc before anything else.
import beanpole  # noqa: F401
