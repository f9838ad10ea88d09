"""Commands about forecasts."""
