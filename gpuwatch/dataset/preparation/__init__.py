"""What preparing a data set costs: the steps of an audit as a chain, on a machine without GPUs and on one with them."""
