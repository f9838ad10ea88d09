"""A launch from the intent to the end of the instance: its states, rules, cost. Values in, values out."""
