"""`/api/v1`: what the commands print as JSON, and what they do."""
