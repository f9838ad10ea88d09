"""Watches, and the decision whether one fires. Pure: values in, values out."""
