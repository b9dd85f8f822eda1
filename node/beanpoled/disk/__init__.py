"""What a node's disk is, and what a stopped node's disk holds. No queue words."""
