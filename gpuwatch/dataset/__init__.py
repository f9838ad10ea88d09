"""Training data: find what a data set repeats, and write a copy without it. Needs the extra `dataset`."""
