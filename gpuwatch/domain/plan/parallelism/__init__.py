"""How several cards and machines share one model, and the files that start such a plan."""
