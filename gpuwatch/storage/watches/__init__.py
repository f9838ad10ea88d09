"""Rows of watches."""
