"""Use cases of forecasts: calendar, advice, backtests, scores."""
