"""OpenAI's `/v1/responses`: its requests as chat requests, and answers in its shape. Pure; answers are not kept."""
