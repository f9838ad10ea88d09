"""The price history: rows, series, aggregates, statistics. Pure functions, textbook methods."""
