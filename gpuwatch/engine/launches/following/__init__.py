"""Following launches: what became of an order, hooks, what is absent, whose an instance is."""
