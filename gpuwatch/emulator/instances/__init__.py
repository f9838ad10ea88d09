"""What was rented: contracts with their lives, bills and machines."""
