"""The page of the alerts."""
