"""From a program to its schedule: who computes, what moves, and the actions that do it."""
