"""Pages about launches."""
