"""What makes a schedule valid: what actions touch, what waits for what, races."""
