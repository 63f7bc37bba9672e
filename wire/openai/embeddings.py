"""Bodies and replies of `POST /v1/embeddings`."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from wire.embeddings import EmbedReply, EmbedRequest, PoolingName, unpacked
from wire.openai.fields import EMBEDDINGS
from wire.openai.prompts import Inputs
from wire.openai.tolerance import Known, Tolerant


class EmbeddingRequest(Tolerant):
    """OpenAI's request, with vLLM's and Agon's `pooling` and `normalize`."""

    known: ClassVar[Mapping[str, Known]] = EMBEDDINGS

    model: str
    input: Inputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(
        default=None, ge=1, description="keep so many of the first numbers, before the vector is normalised"
    )
    pooling: PoolingName | None = Field(
        default=None, description="mean, last or cls (the first); null: the model's own, else last"
    )
    normalize: bool | None = Field(default=None, description="to length 1; null: the model's own, else true")

    def embed_request(self, request_id: str) -> EmbedRequest:
        """The request as a worker gets it."""
        return EmbedRequest(
            request_id=request_id,
            inputs=self.input,
            pooling=self.pooling,
            normalize=self.normalize,
            dimensions=self.dimensions,
        )


class EmbeddingObject(BaseModel):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens of all inputs together."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """Answer of `POST /v1/embeddings`."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage

    @classmethod
    def of(cls, reply: EmbedReply, model: str, encoding_format: Literal["float", "base64"]) -> "EmbeddingList":
        """The vectors of a worker in OpenAI's shape."""
        is_packed = encoding_format == "base64"
        data = [
            EmbeddingObject(index=index, embedding=vector if is_packed else list(unpacked(vector)))
            for index, vector in enumerate(reply.vectors)
        ]
        usage = EmbeddingUsage(prompt_tokens=reply.prompt_tokens, total_tokens=reply.prompt_tokens)
        return cls(data=data, model=model, usage=usage)
