"""The node and the turn in which its parts act."""
