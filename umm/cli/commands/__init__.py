"""The subcommands, a file for each."""
