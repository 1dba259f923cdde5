"""What others' functions do, as tables that are tested."""
