"""Rows of the price history: recording, imports, queries, pruning."""
