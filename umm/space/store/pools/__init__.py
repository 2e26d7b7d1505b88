"""Pools that perform the tasks of a sweep, a file for each; its name is the pool's."""
