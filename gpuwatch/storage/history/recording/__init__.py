"""Recording of answers, and the hourly aggregates."""
