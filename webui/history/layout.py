"""The frame of a page that is only read: header, style and theme, without Gradio.

Such a page is one answer of a few kilobytes. Its scripts take over the theme that the visitor has chosen, copy a
conversation, let wide tables be scrolled by keyboard, and save what the visitor says about the vote.
"""

from functools import cache
from html import escape

from fastapi.responses import HTMLResponse

from webui import texts
from webui.theme import ASSETS

_SCRIPT = """
(() => {
  let theme = null;
  try { theme = localStorage.getItem("agon-theme"); } catch { /* storage may be forbidden */ }
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    const text = source.href || source.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    document.getElementById("said").textContent = button.dataset.done;
  });
  // What is wider than its card is scrolled by keyboard, too.
  const letScroll = () => {
    for (const box of document.querySelectorAll("main :is(pre, table)")) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("load", letScroll);
  addEventListener("resize", letScroll);
})();
"""


def page(title: str, body: str, *, status: int = 200, is_private: bool = True) -> HTMLResponse:
    """A whole page; `body` is markup. `is_private`: no cache may keep it."""
    links = "".join(
        f'<a href="{path}">{escape(name)}</a>' for path, name in (*texts.PAGES, (texts.HISTORY_PATH, texts.HISTORY))
    )
    markup = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{escape(title)} &middot; {texts.BRAND}</title>"
        f"<style>{_style()}</style><script>{_SCRIPT}{_shared('feedback.js')}</script></head>"
        f'<body><header><nav aria-label="{texts.BRAND}"><a class="brand" href="/">{texts.BRAND}</a>{links}</nav>'
        f'</header><main>{body}</main><p id="said" role="status"></p></body></html>'
    )
    return HTMLResponse(markup, status, {"Cache-Control": "no-store" if is_private else "no-cache"})


def sentence(text: str, status: int) -> HTMLResponse:
    """A page with one sentence."""
    return page(texts.HISTORY, f"<h1>{escape(texts.HISTORY)}</h1><p>{escape(text)}</p>", status=status)


@cache
def _style() -> str:
    return "".join(_shared(name) for name in ("tokens.css", "history.css", "feedback.css"))


@cache
def _shared(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
