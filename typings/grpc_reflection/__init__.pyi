"""Stubs of grpcio-reflection: the parts that the daemon and its tests use."""
