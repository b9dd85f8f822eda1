"""What each command does or reads."""
