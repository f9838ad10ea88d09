"""Rows of alerts: outbox, deliveries, silences, chat."""
