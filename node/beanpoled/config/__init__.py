"""The configuration of a node: its settings, and their check against the machine."""
