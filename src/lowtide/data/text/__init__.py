"""Text as sequences of codes: files, tokenizers and vocabularies."""
