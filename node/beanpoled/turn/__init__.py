"""The node: its parts, and the turn in which they act."""
