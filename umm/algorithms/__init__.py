"""Ways from a problem and a machine to a schedule, by name."""
