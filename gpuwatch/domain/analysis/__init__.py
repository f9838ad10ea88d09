"""What the history of prices says: pure functions on what was seen, by textbook methods. No I/O."""
