"""What the price history says: pure functions by textbook methods. No I/O."""
