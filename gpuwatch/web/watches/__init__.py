"""Pages about watches."""
