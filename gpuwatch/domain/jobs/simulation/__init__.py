"""A queue of jobs, replayed on recorded prices."""
