"""Predictions of the shipped machines beside others' publications, row by row."""
