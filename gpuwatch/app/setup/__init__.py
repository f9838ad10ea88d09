"""Use cases of the set-up: settings, doctor, demo, metrics."""
