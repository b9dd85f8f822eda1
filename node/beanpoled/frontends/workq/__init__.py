"""The Workq protocol at a node."""
