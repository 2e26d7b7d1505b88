"""The umm command."""
