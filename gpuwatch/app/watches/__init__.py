"""Use cases of watches: check, status, edit, rehearse, hand over."""
