"""The policy-gradient step: from episodes to new weights. Knows rows of token ids, not games."""
