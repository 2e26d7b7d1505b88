"""What is typed: the flags that commands share, where their defaults come from, and what they ask for."""
