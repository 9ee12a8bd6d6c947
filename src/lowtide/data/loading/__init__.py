"""From a store to batches: what they are cut from, in which order, and how they are made ahead of their use."""
