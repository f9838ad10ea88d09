"""Pages about the daemon and its settings."""
