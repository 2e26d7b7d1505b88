"""Discrete-event simulation of schedules."""
