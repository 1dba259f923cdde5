"""What was apex's, in torch's words."""
