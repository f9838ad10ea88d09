"""Jobs: the queue, preparing a run, following it, its end."""
