"""Measurements of Lowtide, one script a question: each prints a table and writes JSON."""
