"""Where sequences come from: one kind of source a file, each giving chunks of sequences in bounded memory."""
