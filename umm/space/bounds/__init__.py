"""Lower bounds of a point's makespan: of a whole space at once, of any order, of one schedule."""
