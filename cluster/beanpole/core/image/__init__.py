"""The machine as canonical bytes, and back."""
