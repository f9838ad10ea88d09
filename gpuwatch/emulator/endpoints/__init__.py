"""The requests of the marketplace's protocol, and how each is answered."""
