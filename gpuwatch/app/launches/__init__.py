"""Use cases of launches: list, approve, extend, stop, adopt, cost."""
