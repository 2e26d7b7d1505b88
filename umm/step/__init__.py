"""A training step: layers on their stages, micro-batches, pipeline, loss, sums of gradients and optimizer."""
