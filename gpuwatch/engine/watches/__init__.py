"""Watches: gathering offers, evaluating, hunting."""
