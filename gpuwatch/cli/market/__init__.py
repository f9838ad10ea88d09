"""Commands about the market."""
