"""Client protocols: one package each, and what they share."""
