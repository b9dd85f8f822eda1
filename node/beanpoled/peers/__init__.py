"""The other members as this node knows them, and the agreement of the replicas."""
