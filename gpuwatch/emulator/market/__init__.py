"""What the emulated marketplace sells: machines, their listings and prices, and how they are searched."""
