"""The life of a launch, from the intent to the end of the instance: states, rules, cost. Values in, values out."""
