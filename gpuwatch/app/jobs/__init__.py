"""Use cases of jobs: plan, queue, look at, hand over."""
