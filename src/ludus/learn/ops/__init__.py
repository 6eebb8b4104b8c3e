"""Pure maths on tensors: recurrences over time, advantages, distributions."""
