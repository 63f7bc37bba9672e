"""The web UI's settings, read once at start; nothing else of the web UI reads the environment."""

from pydantic import Field, FilePath
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Every field is an environment variable with the prefix AGON_; `python -m webui` overrides the first three."""

    model_config = SettingsConfigDict(env_prefix="AGON_", frozen=True, extra="ignore")

    webui_host: str = "127.0.0.1"
    webui_port: int = 7860
    controller_url: str = "http://127.0.0.1:8100"
    api_key: str | None = Field(default=None, repr=False)  #: sent as a bearer token to a controller that asks for one
    #: How many events (streams, votes, timer ticks) run at once. Gradio's own default is 40.
    webui_max_events: int = Field(default=500, ge=1)
    #: Tokens are gathered this long before the page is updated: ten updates a second read as fluent and cost little.
    webui_update_interval_s: float = Field(default=0.1, gt=0, le=2)
    #: Leaderboard and workers are asked for at most this often, however many visitors watch them.
    webui_board_max_age_s: float = Field(default=1.0, ge=0)
    #: The longest prompt that the page accepts, in characters; the controller has its own limit.
    webui_max_prompt_chars: int = Field(default=8000, ge=1)
    #: Proxies in front of the web UI whose X-Forwarded-For header is believed (comma separated addresses, or *).
    webui_trusted_proxies: str = "127.0.0.1"
    #: A file of plain text: the terms of whoever runs this arena, shown under About.
    webui_terms_file: FilePath | None = None

    def terms(self) -> str | None:
        return None if self.webui_terms_file is None else self.webui_terms_file.read_text(encoding="utf-8")
