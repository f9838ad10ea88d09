"""Use cases, one module each: plain inputs to result structs. Every interface is a thin client of these."""
