// The choice of the language: a cookie for the server, then the page is loaded again, which restores its battle and what
// was typed. Loaded in the head, before Gradio, whose own words follow the language of the page.
(() => {
  "use strict";

  const COOKIE = "agon-language";
  const PATH = document.querySelector("meta[name=agon-root]").content || "/"; // the path prefix
  const A_YEAR_S = 31_536_000;
  const PICKER = ".agon-language";
  const root = document.documentElement;

  const language = root.lang; // as the page was served
  const GRADIOS = { zh: "zh-CN" }; // languages that Gradio calls otherwise

  // Gradio takes its language from the browser, English instead of one that it does not know, and names it in the page.
  const gradios = GRADIOS[language] ?? language;
  Object.defineProperty(navigator, "language", { get: () => gradios, configurable: true });
  Object.defineProperty(navigator, "languages", { get: () => [gradios], configurable: true });
  new MutationObserver(() => {
    if (root.lang !== language) root.lang = language;
  }).observe(root, { attributes: true, attributeFilter: ["lang"] });

  function choose(chosen) {
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `${COOKIE}=${chosen}; path=${PATH}; max-age=${A_YEAR_S}; samesite=lax${secure}`;
    location.reload();
  }

  function closeAllBut(kept) {
    for (const open of document.querySelectorAll(`${PICKER}[open]`)) if (open !== kept) open.open = false;
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-language]");
    if (button) choose(button.dataset.language);
    else closeAllBut(target.closest?.(PICKER));
  });
  document.addEventListener("focusin", ({ target }) => closeAllBut(target.closest?.(PICKER)));
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && document.querySelector(`${PICKER}[open]`);
    if (!open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });
  document.addEventListener(
    "toggle",
    ({ target }) => {
      if (!target.matches?.(PICKER)) return;
      for (const button of target.querySelectorAll("[data-language]")) {
        if (button.dataset.language === language) button.setAttribute("aria-current", "true");
      }
    },
    true,
  );
})();
