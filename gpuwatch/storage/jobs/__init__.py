"""Rows of jobs."""
