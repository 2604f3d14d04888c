"""An output and its reference → ErrorStats, readings in any gauge, and the error scale of an op."""
