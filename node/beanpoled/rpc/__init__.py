"""gRPC: the services of a node, for operators, programs and other nodes."""
