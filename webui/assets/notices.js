// Notices of the operator above the page, and the terms, which a visitor accepts before the first question.
// Asks the server when the page is opened, each minute while it is looked at, and when the page shows a failure.
(() => {
  "use strict";

  const ROOT = document.querySelector("meta[name=agon-root]").content; // the path prefix
  const NOTICES = `${ROOT}/notices`;
  const TERMS = `${ROOT}/terms`;
  const EVERY_MS = 60000;
  const MIN_PAUSE_MS = 2000;
  const HIDDEN_KEY = `agon-hidden-notices${ROOT}`;
  const ASKING = ["/", "/side-by-side", "/chat"].map((path) => ROOT + path); // pages on which a question can be asked

  let lastAsked = -Infinity;
  let shown = "";

  function hidden() {
    try {
      return new Set(JSON.parse(localStorage.getItem(HIDDEN_KEY) ?? "[]"));
    } catch {
      return new Set();
    }
  }

  function hide(id, current) {
    const ids = hidden().add(id);
    try {
      // Only those that are still shown: the list does not grow.
      localStorage.setItem(HIDDEN_KEY, JSON.stringify([...ids].filter((known) => current.has(known))));
    } catch {
      // Without storage the notice is hidden until the page is loaded again.
    }
  }

  // Without the slash at its end, which only the first page has.
  function pagePath() {
    return location.pathname === `${ROOT}/` ? location.pathname : location.pathname.replace(/\/$/, "");
  }

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function showNotices(notices, words) {
    const state = JSON.stringify(notices);
    if (state === shown) return;
    shown = state;
    let box = document.getElementById("agon-notices");
    if (!box) {
      box = element("div", { id: "agon-notices" });
      box.setAttribute("role", "region");
      document.body.prepend(box);
    }
    box.setAttribute("aria-label", words.region);
    const gone = hidden();
    const ids = new Set(notices.map((notice) => notice.id));
    const lines = notices
      .filter((notice) => !gone.has(notice.id))
      .map((notice) => {
        const close = element("button", { type: "button", textContent: "\u00d7", title: words.hide });
        close.setAttribute("aria-label", words.hide);
        const text = element("p", { textContent: notice.text });
        text.setAttribute("role", notice.severity === "critical" ? "alert" : "status");
        const line = element("div", { className: `agon-announcement agon-announcement-${notice.severity}` }, text, close);
        line.dataset.notice = notice.id;
        close.addEventListener("click", () => {
          hide(notice.id, ids);
          line.remove();
        });
        return line;
      });
    box.replaceChildren(...lines);
    box.hidden = lines.length === 0;
  }

  function showTerms(terms, words) {
    const open = document.getElementById("agon-terms");
    if (!terms || !ASKING.includes(pagePath())) {
      open?.remove();
      return;
    }
    if (open?.dataset.version === terms.version) return;
    open?.remove();
    const title = element("h2", { id: "agon-terms-title", textContent: words.title });
    const paragraphs = terms.text.split(/\n{2,}/).map((part) => element("p", { textContent: part }));
    const text = element("div", { className: "agon-terms-text", tabIndex: 0 }, ...paragraphs);
    text.setAttribute("role", "group");
    text.setAttribute("aria-labelledby", title.id);
    const failure = element("p", { className: "agon-terms-failure" });
    failure.setAttribute("role", "alert");
    const accept = element("button", { type: "button", className: "agon-terms-accept", textContent: words.accept });
    const decline = element("a", { href: `${ROOT}/leaderboard`, textContent: words.decline });
    const foot = element("div", { className: "agon-terms-foot" }, accept, decline);
    const dialog = element("dialog", { id: "agon-terms" }, title, element("p", { textContent: words.lead }), text, failure, foot);
    dialog.setAttribute("aria-labelledby", title.id);
    dialog.dataset.version = terms.version;
    dialog.addEventListener("cancel", (event) => event.preventDefault()); // Escape does not accept
    accept.addEventListener("click", async () => {
      accept.disabled = true;
      try {
        const headers = { "Content-Type": "application/json" };
        const answer = await fetch(TERMS, { method: "POST", headers, body: JSON.stringify({ version: terms.version }) });
        if (answer.ok) {
          dialog.close();
          dialog.remove();
          document.querySelector("#prompt textarea")?.focus({ preventScroll: true });
          return;
        }
        if (answer.status === 400) await ask(); // the terms have changed meanwhile
      } catch {
        // The network is away: said below, and the button works again.
      }
      failure.textContent = words.failed;
      accept.disabled = false;
    });
    document.body.append(dialog);
    dialog.showModal();
  }

  async function ask() {
    lastAsked = performance.now();
    let answer;
    try {
      const response = await fetch(NOTICES, { cache: "no-store" });
      answer = response.ok ? await response.json() : {};
    } catch {
      return; // what is shown stays
    }
    if (!answer.words) return;
    showNotices(answer.notices, answer.words);
    showTerms(answer.terms, answer.words);
  }

  function askSoon() {
    if (document.visibilityState === "visible" && performance.now() - lastAsked > MIN_PAUSE_MS) ask();
  }

  // A question that is refused may be refused for new terms, and a failure may have a notice that explains it. The web
  // UI learns of them within a second (notices.py), so the second answer has them.
  let askingAgain;
  function askAfterFailure() {
    askSoon();
    clearTimeout(askingAgain);
    askingAgain = setTimeout(ask, MIN_PAUSE_MS);
  }

  function start() {
    ask();
    setInterval(askSoon, EVERY_MS);
    document.addEventListener("visibilitychange", () => performance.now() - lastAsked > EVERY_MS && askSoon());
    new MutationObserver((changes) => {
      const isFailure = (node) => node.nodeType === 1 && (node.matches(".agon-notice") || node.querySelector(".agon-notice"));
      if (changes.some((change) => [...change.addedNodes].some(isFailure))) askAfterFailure();
    }).observe(document.body, { childList: true, subtree: true });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
