"""The files that a data set may have: each gives its rows as lines of JSON, and copies some of them unchanged."""
