"""Jobs: work that waits for a price, runs on a rented instance, and returns its results. Pure."""
