"""The needs and the cost of a job: memory, hours, money. Pure functions on figures and offers. No I/O."""
