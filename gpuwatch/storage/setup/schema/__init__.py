"""Tables of single nouns, beside `tables.py` and `side_tables.py`."""
