"""The report of one agent: how it breaks and what to do about it, on one page of HTML."""
