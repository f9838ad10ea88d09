"""Alerts: what they say, where they go, and their delivery."""
