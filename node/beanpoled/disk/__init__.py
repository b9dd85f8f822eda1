"""The identity of a node's disk, and the contents of a stopped node's disk."""
