"""Use cases of alerts: the list, silences, test messages."""
