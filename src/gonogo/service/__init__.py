"""Submissions over HTTP → verdicts: a queue that survives, judges that stay warm, one JSON protocol."""
