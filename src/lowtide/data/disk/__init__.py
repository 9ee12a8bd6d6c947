"""What a store is on disk: its shards, lengths and manifest, how they are written safely, read and verified."""
