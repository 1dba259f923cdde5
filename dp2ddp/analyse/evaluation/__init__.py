"""Evaluation loops: whether their batches can be dealt in turn or divided."""
