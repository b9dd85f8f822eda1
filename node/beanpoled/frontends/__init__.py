"""The client protocols, one package each, and the code that they share."""
