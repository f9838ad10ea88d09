"""What each figure is measured against, written by hand: the least that does the same thing."""
