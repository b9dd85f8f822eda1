"""The Redis protocol at a node, as far as clients of qless speak it."""
