"""From a program to its schedule: who computes, which tiles move, and the actions that do it."""
