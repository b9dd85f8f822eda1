"""Stubs of grpcio-health-checking: the parts that the daemon and its tests use."""
