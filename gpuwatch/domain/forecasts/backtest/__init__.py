"""What watches would have done: the daemon's decisions applied to a recorded market in simulated time. No I/O."""
