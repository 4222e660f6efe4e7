"""Limits that a server has to know without importing what it limits."""

# Source and output tokens over all alternatives that are continued. Enough for sentences of up to about 100 tokens.
MAX_CONTINUED_TOKENS = 32_768
# Attention weights over all alternatives whose own attention is kept: about 2 MB of a page.
MAX_REDRAWN_WEIGHTS = 1_500_000
