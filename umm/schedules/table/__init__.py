"""What a schedule holds: columns of actions, buffers, lanes, the platform they run on."""
