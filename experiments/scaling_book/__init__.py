"""Notes on the JAX scaling book's sharded matrices: four collectives, and worked problems on TPU v5e."""
