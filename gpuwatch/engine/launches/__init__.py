"""Launches: renting, following, guarding."""
