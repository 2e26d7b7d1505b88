"""The search for the best points, proven by bounds, under a memory budget."""
