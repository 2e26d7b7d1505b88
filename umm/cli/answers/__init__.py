"""Answers of commands, imported when one is called."""
