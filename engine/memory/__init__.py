"""The page pool of the engine: bookkeeping without torch. PagedAttention, generalised by Jenga to mixed layers."""
