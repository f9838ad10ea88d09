"""Renting: candidates, approvals, orders."""
