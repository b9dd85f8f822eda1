"""The commands: one function for each, and a row of the table."""
