// One line that says that an event failed, in place of Gradio's own messages, which name causes that no visitor can mend.
(() => {
  "use strict";

  const SHOWN_MS = 15_000;
  const word = (name) => document.querySelector(`meta[name=agon-${name}]`)?.content ?? "";
  const line = document.createElement("div");
  line.id = "agon-toast";
  line.setAttribute("role", "alert");
  let hiding = null;

  function hide() {
    clearTimeout(hiding);
    line.replaceChildren();
  }

  function show() {
    const close = document.createElement("button");
    close.type = "button";
    close.setAttribute("aria-label", word("close"));
    close.textContent = "\u00d7";
    close.addEventListener("click", hide);
    const text = document.createElement("span");
    text.textContent = word("failed");
    line.replaceChildren(text, close);
    clearTimeout(hiding);
    hiding = setTimeout(hide, SHOWN_MS);
  }

  function onChange() {
    const messages = document.querySelectorAll(".toast-body:not([data-agon])");
    for (const message of messages) message.dataset.agon = "";
    if (messages.length && !document.body.classList.contains("agon-is-away")) show();
  }

  function start() {
    document.body.append(line);
    new MutationObserver(onChange).observe(document.body, { childList: true, subtree: true });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
