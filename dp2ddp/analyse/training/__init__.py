"""The training loop: its loader, its loss, what it reports, and what it trains beside the model."""
