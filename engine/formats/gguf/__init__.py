"""GGUF, the format of llama.cpp: weights, settings and tokenizer of a model in one file."""
