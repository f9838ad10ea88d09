"""Automatic prices, and the scores of forecasts."""
