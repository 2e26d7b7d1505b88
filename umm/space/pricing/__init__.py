"""What points of a space take: bounds of all, then of each its memory, a better bound and its makespan."""
