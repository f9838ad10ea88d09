"""What a job needs and costs: memory, hours, money. Pure functions on figures and offers. No I/O."""
