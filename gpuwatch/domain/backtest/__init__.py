"""What watches would have done: the decisions of the daemon over a recorded market, on a clock of its own. No I/O."""
