"""What is shown: reports, tables and files."""
