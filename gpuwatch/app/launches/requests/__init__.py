"""What a person or an agent asks for beside the watches: one offer, or the best of a watch."""
