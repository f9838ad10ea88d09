"""The money of launches: cost, budgets, bids, invoices. Pure."""
