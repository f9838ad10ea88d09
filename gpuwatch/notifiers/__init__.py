"""The alert channels, one file each."""
