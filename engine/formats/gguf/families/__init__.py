"""The architectures of GGUF files, by what their layers are."""
