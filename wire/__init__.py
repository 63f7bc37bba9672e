"""The language between Agon's processes: pydantic models, error codes, the SSE codec, the OpenAI schema. No I/O."""
