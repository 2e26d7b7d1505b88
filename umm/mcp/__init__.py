"""For agents: commands as tools of the Model Context Protocol, with typed answers."""
