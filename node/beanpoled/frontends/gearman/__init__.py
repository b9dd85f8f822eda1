"""The Gearman protocol at a node."""
