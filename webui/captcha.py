"""`/check`: a page with the widget of a captcha. Who solves it gets the cookie of a voter and goes on to the arena.

The widget is the only thing that any page loads from another host, and only this page may load it.
"""

from html import escape
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from webui import sentences, texts
from webui.bare_page import bare_page
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.links import link_to
from webui.visitors import CHECK_PATH, Visitor, came_over_tls
from wire.errors import ApiError
from wire.voters import VoterCookies

_FIELDS = ("cf-turnstile-response", "h-captcha-response", "g-recaptcha-response")
_MAX_RESPONSE_CHARS = 4096


def add_check_page(
    app: FastAPI, client: ControllerClient, cookies: VoterCookies, script_url: str, site_key: str
) -> None:
    """Add the page. `script_url`, `site_key`: those of the captcha's service."""
    script = f'<script src="{escape(script_url)}" async defer></script>'
    widget = f'<div class="cf-turnstile h-captcha g-recaptcha" data-sitekey="{escape(site_key)}"></div>'
    policy = _policy(urlsplit(script_url).netloc)

    def page(sentence: str, status: int = 200) -> Response:
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        form = f'<form method="post" action="{link_to(CHECK_PATH)}">{widget}<p><button>{texts.CHECK_SEND}</button></p>'
        return HTMLResponse(bare_page(f"{escape(sentence)}{script}{form}</form>"), status, headers)

    @app.get(CHECK_PATH)
    async def show() -> Response:
        return page(texts.CHECK)

    @app.post(CHECK_PATH)
    async def check(request: Request) -> Response:
        sent = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=16)
        solved = next((sent[name][0] for name in _FIELDS if name in sent), "")[:_MAX_RESPONSE_CHARS]
        if not solved:
            return page(texts.CHECK, 400)
        try:
            reply = await client.check_visitor(solved, Visitor(request.client.host if request.client else "unknown"))
        except ApiError as error:
            return page(sentences.failure(error.code), error.status)
        except ControllerUnreachable:
            return page(texts.UNREACHABLE, 503)
        answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
        text = cookies.new("p" if reply.outcome == "passed" else "c")
        answer.headers["Set-Cookie"] = cookies.set_cookie(text, is_secure=came_over_tls(request.scope))
        return answer


def _policy(host: str) -> str:
    """What this page may load: the widget, whose frames and requests go to hosts of the same domain."""
    hosts = f"{host} *.{host.partition('.')[2] or host}"
    return (
        f"default-src 'self'; script-src 'self' {hosts}; frame-src {hosts}; connect-src 'self' {hosts}; "
        f"style-src 'self' 'unsafe-inline' {hosts}; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
    )
