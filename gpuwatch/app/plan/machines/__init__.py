"""Use cases for several cards and machines: the use of the owner's own, and the parallelism of a plan."""
