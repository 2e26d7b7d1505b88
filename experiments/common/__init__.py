"""What experiments share: points that are kept as they are found, published numbers, images, the ledger."""
