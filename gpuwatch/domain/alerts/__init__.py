"""Alerts: what the owner is sent, declared once. Pure."""
