"""Rows and a limit → verdicts, and what people read of them."""
