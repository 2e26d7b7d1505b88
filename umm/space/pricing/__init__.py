"""Prices of a space's points: bounds of all, then of each its memory, a better bound and its makespan."""
