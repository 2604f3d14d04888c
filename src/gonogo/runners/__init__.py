"""Jobs → records: in this process, or in workers that may crash and hang."""
