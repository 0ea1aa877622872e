"""What is true now: mergeable summaries of constant size."""
