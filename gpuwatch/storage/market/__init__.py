"""Rows of providers: open prices, holds."""
