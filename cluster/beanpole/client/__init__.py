"""Clients of a cluster: of each protocol and of gRPC, with what they have in common."""
