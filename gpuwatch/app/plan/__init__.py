"""Use cases of the planner: memory, hours and money of a job."""
