"""A user's kernel, output, file or test suite → verdicts."""
