"""How operands come to who multiplies and sums go where they belong, when not by the paper's flat gets."""
