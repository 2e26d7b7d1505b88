"""Other libraries on the same multiplies: programs that run in an environment of their own and print JSON."""
