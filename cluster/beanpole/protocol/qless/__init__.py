"""The codec of qless: scripts, arguments, JSON and texts of its dialects. No Lua is executed."""
