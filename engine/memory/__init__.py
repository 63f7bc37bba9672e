"""The bookkeeping of the page pool, without torch: PagedAttention, generalised by Jenga to layers of several types."""
