"""The commands: a handler and a row of the table for each."""
