"""Chat commands about watches."""
