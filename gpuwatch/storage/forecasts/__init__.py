"""Rows of forecasts and automatic prices."""
