"""Jobs: work that waits for its price, runs on a rented instance, and ends with its results. Pure."""
