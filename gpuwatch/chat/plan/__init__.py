"""The planner in the chat."""
