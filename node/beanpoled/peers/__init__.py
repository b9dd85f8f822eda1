"""What this node knows of the other members, and whether the replicas agree."""
