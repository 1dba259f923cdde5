"""What writes into a value: the places, the loops round them, what is stored there and what is written into rows."""
