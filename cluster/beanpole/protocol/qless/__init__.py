"""qless: scripts, arguments, JSON and texts of its dialects; no Lua is run."""
