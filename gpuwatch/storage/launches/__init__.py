"""Rows of launches, and what bars one."""
