"""What the shipped machines predict beside what others published, row by row."""
