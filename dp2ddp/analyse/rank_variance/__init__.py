"""What differs between processes that each have a part of a batch or of an evaluation, and what they decide by it."""
