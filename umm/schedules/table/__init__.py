"""The columns of a schedule: actions, buffers, lanes, the platform they run on."""
