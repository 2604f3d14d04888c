"""Tests that used the fixture → the project's lock file, lines for pytest's summary, a page of Markdown."""
