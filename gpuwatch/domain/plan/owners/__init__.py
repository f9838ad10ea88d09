"""Kinds of owners: their ways to get GPU time, grants and credits, and the large clouds."""
