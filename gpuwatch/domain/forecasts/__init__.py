"""Forecasts of prices, and what they are worth: calendar, advice, scores, backtests. Pure."""
