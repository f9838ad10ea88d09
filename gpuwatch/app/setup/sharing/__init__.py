"""Sharing without a login: signed links to a chart, the feed of alerts, the calendar of ends and windows."""
