"""Renting in the chat."""
