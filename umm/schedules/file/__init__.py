"""A schedule as JSON and as text."""
