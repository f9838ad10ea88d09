"""Commands about the price history."""
