"""The Parquet lake: what is over, in files that other programs read, and from which old spans are answered."""
