"""From sources of any shape and size to a store: what is asked for, how it is encoded, filled and counted."""
