"""Reading the owner's own machines."""
