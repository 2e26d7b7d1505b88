"""The way DTensor multiplies, chosen by what torch's processes were measured to take."""
