"""Import and export of price files."""
