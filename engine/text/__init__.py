"""Text on both ends of the engine: tokenizer, chat template, incremental detokenizer, stop strings."""
