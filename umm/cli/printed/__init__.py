"""Printed answers: reports, tables and files."""
