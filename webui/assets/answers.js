// What Gradio's conversation lacks for screen readers, keyboards and right-to-left text: a name for each answer, a
// direction for each block of text, and a way to scroll what is wider than its card. Gradio writes the markup of an answer
// anew with every piece of text, so this is done after every change.
(() => {
  "use strict";

  const SCROLLED = "#thread .prose :is(pre, table, .katex-display)";
  const BLOCKS = "#thread .bot-row .prose > :is(p, ul, ol, dl, table, blockquote, h1, h2, h3, h4, h5, h6):not([dir])";
  const LOOK_AFTER_MS = 200; // measuring costs a layout, so it waits until the text stands still

  const word = (name) => document.querySelector(`meta[name=agon-${name}]`)?.content ?? "";

  function set(element, name, value) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }

  // A log is read out as it grows: two answers at once, piece by piece. agon.js says when they are finished.
  function quietLog(thread) {
    const log = thread.querySelector("[role=log]");
    if (!log) return;
    set(log, "role", "region");
    set(log, "aria-live", "off");
    set(log, "aria-label", word("conversation"));
  }

  function nameAnswers(thread) {
    for (const row of thread.querySelectorAll(".bot-row")) {
      const isA = row.previousElementSibling?.classList.contains("user-row");
      set(row, "role", "group");
      set(row, "aria-label", word(isA ? "answer-a" : "answer-b"));
    }
  }

  // Gradio has names for these buttons in English only.
  const COPY_NAMES = { copy: "copy", "Copy message": "copy", "Copied message": "copied" };

  function nameCopyButtons(thread) {
    for (const button of thread.querySelectorAll("button[title]")) {
      const name = COPY_NAMES[button.title];
      if (!name) continue;
      set(button, "title", word(name));
      set(button, "aria-label", word(name));
    }
  }

  function dress() {
    const thread = document.getElementById("thread");
    if (!thread) return;
    quietLog(thread);
    nameCopyButtons(thread);
    if (thread.classList.contains("agon-columns-2")) nameAnswers(thread);
    // Gradio's label repeats the whole text.
    for (const message of thread.querySelectorAll("[data-testid=bot][aria-label], [data-testid=user][aria-label]")) {
      message.removeAttribute("aria-label");
    }
    for (const question of thread.querySelectorAll("[data-testid=user]")) set(question, "dir", "auto");
    for (const block of document.querySelectorAll(BLOCKS)) block.dir = "auto";
  }

  function letScroll() {
    for (const box of document.querySelectorAll(SCROLLED)) {
      if (box.scrollWidth > box.clientWidth + 1) set(box, "tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  }

  // Gradio's button copies the answer with the markup of its model's name and its thoughts.
  const FOLDED = /^(<p class="agon-by">[^\n]*<\/p>\n*)?(<details class="agon-thoughts"[^\n]*<\/details>\n*)?/;

  function copyAnswersOnly() {
    const clipboard = navigator.clipboard;
    if (!clipboard) return;
    const write = clipboard.writeText.bind(clipboard);
    clipboard.writeText = (text) => write(String(text).replace(FOLDED, ""));
  }

  let waiting = null;

  function onChange() {
    dress();
    clearTimeout(waiting);
    waiting = setTimeout(letScroll, LOOK_AFTER_MS);
  }

  function start() {
    new MutationObserver(onChange).observe(document.body, { childList: true, subtree: true });
    window.addEventListener("resize", onChange);
    copyAnswersOnly();
    onChange();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
