"""Commands of the set-up and of the service."""
