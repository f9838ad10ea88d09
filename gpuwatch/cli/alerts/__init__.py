"""Commands about alerts."""
