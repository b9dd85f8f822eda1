"""Trust between nodes and with clients: secrets, proofs, certificates, counts of refusals."""
