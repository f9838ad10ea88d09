"""Recording of answers."""
