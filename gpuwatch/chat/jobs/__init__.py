"""Jobs in the chat."""
