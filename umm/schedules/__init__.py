"""Schedules: the table of actions, and the ways to make one."""
