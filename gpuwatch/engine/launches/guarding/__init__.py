"""Guarding instances: prices, budgets, use, the end at the right time."""
