"""Keeping an installation: the upgrade of its store, and the systemd service."""
