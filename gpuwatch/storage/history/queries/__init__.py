"""Queries over the price history."""
