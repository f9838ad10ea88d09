"""Decisions of the owner: the quotes that wait for an answer."""
