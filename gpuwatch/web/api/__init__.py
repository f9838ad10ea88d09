"""`/api/v1`: the JSON of the commands, and their actions."""
