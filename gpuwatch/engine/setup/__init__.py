"""What several tasks need: threads, failpoints."""
