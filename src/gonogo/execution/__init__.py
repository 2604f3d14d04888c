"""One kernel, one case → a row: calls, what is wrong with the outputs, what they read."""
