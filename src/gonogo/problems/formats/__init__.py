"""One file per format of a benchmark."""
