"""The configuration of a node: its settings, and whether they fit the machine."""
