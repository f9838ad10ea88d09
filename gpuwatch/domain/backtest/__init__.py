"""What watches would have done: the daemon's decisions over a recorded market, with simulated time. No I/O."""
