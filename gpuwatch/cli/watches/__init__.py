"""Commands about watches."""
