"""Hand-written floors that the figures are compared with: the least code with the same result."""
