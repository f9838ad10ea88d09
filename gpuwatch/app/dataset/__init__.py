"""Less to train on: finds what a data set repeats, and writes a copy without it. Needs the extra `dataset`."""
