"""Pages about the market."""
