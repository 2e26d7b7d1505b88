"""The way DTensor multiplies, chosen by times that were measured on torch's processes."""
