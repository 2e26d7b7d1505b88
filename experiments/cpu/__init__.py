"""Predicted against measured on this host: many layouts of a few shapes, each simulated and executed."""
