"""Commands about launches."""
