"""Less to train on: what of a data set repeats itself, and a copy without it. Wants the extra `dataset`."""
