"""Analysis of the price history: pure functions, textbook methods, no I/O."""
