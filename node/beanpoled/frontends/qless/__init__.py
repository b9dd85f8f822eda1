"""The Redis protocol at a node, as far as qless clients need it."""
