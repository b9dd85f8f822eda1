"""The other members as this node knows them, and whether the replicas agree."""
