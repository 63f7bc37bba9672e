// Saves what a visitor says about a vote, a moment after each change, and says so. What could not be saved is tried
// again, and kept by the browser until it is: also if the page is closed meanwhile.
(() => {
  "use strict";

  const DRAFTS = "agon-feedback";
  const MOST_DRAFTS = 20;
  const SAVE_AFTER_MS = 500; // several clicks are one addition
  const SAVE_TYPED_AFTER_MS = 1500;
  const AGAIN_AFTER_MS = [1000, 2000, 4000, 8000, 15000];
  const ROOM = "(min-width: 761px) and (min-height: 641px)"; // elsewhere the block begins folded

  // By path: what the arena has (`saved`), what the page shows (`said`), both as JSON; `timer`, `sent` (on its way), `tries`.
  const votes = new Map();

  function drafts() {
    try {
      return JSON.parse(localStorage.getItem(DRAFTS) ?? "{}");
    } catch {
      return {};
    }
  }

  function keepDraft(path, text) {
    const { [path]: _, ...others } = drafts();
    const entries = Object.entries(others).slice(1 - MOST_DRAFTS);
    if (text !== null) entries.push([path, text]);
    try {
      if (entries.length) localStorage.setItem(DRAFTS, JSON.stringify(Object.fromEntries(entries)));
      else localStorage.removeItem(DRAFTS);
    } catch {
      // Without storage it is lost if the page is closed before it is saved.
    }
  }

  const blockOf = (path) => [...document.querySelectorAll("[data-feedback]")].find((it) => it.dataset.feedback === path);

  function read(block) {
    const checked = [...block.querySelectorAll(".agon-reason input:checked")];
    const pressed = [...block.querySelectorAll("[data-thumb][aria-pressed=true]")];
    return JSON.stringify({
      reasons: checked.map((box) => box.value),
      comment: block.querySelector("textarea").value.trim() || null,
      thumbs: Object.fromEntries(pressed.map((button) => [button.dataset.side, button.dataset.thumb])),
    });
  }

  function write(block, text) {
    const said = JSON.parse(text);
    for (const box of block.querySelectorAll(".agon-reason input")) box.checked = said.reasons.includes(box.value);
    for (const button of block.querySelectorAll("[data-thumb]")) {
      button.setAttribute("aria-pressed", String(said.thumbs[button.dataset.side] === button.dataset.thumb));
    }
    const box = block.querySelector("textarea");
    if (box.value.trim() !== (said.comment ?? "")) box.value = said.comment ?? "";
    grow(box);
  }

  function grow(box) {
    box.style.height = "auto";
    if (box.scrollHeight) box.style.height = `${box.scrollHeight + 2}px`;
  }

  function say(path, sentence, isFailure = false) {
    const line = blockOf(path)?.querySelector(".agon-feedback-state");
    if (!line) return;
    line.textContent = sentence;
    line.classList.toggle("agon-failed", isFailure);
  }

  function later(path, waitMs) {
    const vote = votes.get(path);
    clearTimeout(vote.timer);
    vote.timer = setTimeout(() => save(path), waitMs);
  }

  function changed(block, waitMs) {
    const path = block.dataset.feedback;
    const vote = votes.get(path);
    vote.said = read(block);
    vote.tries = 0;
    if (vote.said === vote.saved && vote.sent === null) {
      clearTimeout(vote.timer);
      keepDraft(path, null);
      return;
    }
    keepDraft(path, vote.said);
    say(path, "");
    later(path, waitMs);
  }

  function send(path, text) {
    const headers = { "Content-Type": "application/json" };
    return fetch(path, { method: "POST", headers, body: text, keepalive: true });
  }

  async function save(path) {
    const vote = votes.get(path);
    if (vote.sent !== null || vote.said === vote.saved) return;
    const text = vote.said;
    vote.sent = text;
    let status = 0;
    let sentence = blockOf(path)?.dataset.waiting ?? "";
    try {
      const answer = await send(path, text);
      status = answer.status;
      sentence = (await answer.json()).sentence ?? sentence;
    } catch {
      // No answer, or one of a proxy in between.
    }
    vote.sent = null;
    if (status === 200) {
      vote.saved = text;
      vote.tries = 0;
      if (vote.said !== text) return later(path, 0);
      keepDraft(path, null);
      return say(path, sentence);
    }
    if (status === 0 || status === 429 || status >= 500) {
      later(path, AGAIN_AFTER_MS[Math.min(vote.tries++, AGAIN_AFTER_MS.length - 1)]);
    } else {
      keepDraft(path, null); // sending it again would not help
    }
    say(path, sentence, true);
  }

  function adopt(block) {
    block.dataset.live = "";
    const path = block.dataset.feedback;
    const known = votes.get(path);
    const shown = read(block);
    const vote = known ?? { saved: shown, said: drafts()[path] ?? shown, timer: 0, sent: null, tries: 0 };
    votes.set(path, vote);
    block.querySelector("details").open = matchMedia(ROOM).matches;
    if (vote.said !== shown) write(block, vote.said);
    else grow(block.querySelector("textarea"));
    if (vote.said !== vote.saved) later(path, 0);
  }

  function onChange() {
    for (const block of document.querySelectorAll("[data-feedback]:not([data-live])")) adopt(block);
  }

  const blockAt = (target) => target.closest?.("[data-feedback]");

  function onClick({ target }) {
    const button = target.closest?.("[data-feedback] [data-thumb]");
    if (!button) return;
    const isPressed = button.getAttribute("aria-pressed") === "true";
    for (const twin of button.parentElement.querySelectorAll("[data-thumb]")) twin.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(!isPressed));
    changed(blockAt(button), SAVE_AFTER_MS);
  }

  function onInput({ target }) {
    const block = blockAt(target);
    if (!block) return;
    if (target.tagName === "TEXTAREA") grow(target);
    changed(block, target.tagName === "TEXTAREA" ? SAVE_TYPED_AFTER_MS : SAVE_AFTER_MS);
  }

  // A comment is complete when its box loses the focus.
  function onLeave({ target }) {
    const block = target.tagName === "TEXTAREA" ? blockAt(target) : null;
    if (block && votes.get(block.dataset.feedback).said !== votes.get(block.dataset.feedback).saved) {
      later(block.dataset.feedback, 0);
    }
  }

  function onClose() {
    for (const [path, vote] of votes) {
      if (vote.said !== (vote.sent ?? vote.saved)) send(path, vote.said).catch(() => {});
    }
  }

  function start() {
    document.addEventListener("click", onClick);
    document.addEventListener("input", onInput);
    document.addEventListener("focusout", onLeave);
    window.addEventListener("pagehide", onClose);
    new MutationObserver(onChange).observe(document.body, { childList: true, subtree: true });
    onChange();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
