"""Use cases of the price history: its prices, charts, import and export."""
