// The page's own script: theme, voting by keyboard, space for the dock, and scrolling a new question to the top.
// Gradio does the rest. No network access; the only thing stored is the chosen theme.
(() => {
  "use strict";

  const BRAND = "Agon";
  const ROOT = document.querySelector("meta[name=agon-root]").content; // the path prefix
  const THEME_KEY = "agon-theme";
  const VOTE_KEYS = { ArrowLeft: "vote-left", ArrowRight: "vote-right", ArrowUp: "vote-up", ArrowDown: "vote-down" };
  // For this long after the vote bar has appeared keys do not vote: the key may have been pressed for something else.
  const VOTE_GRACE_MS = 500;
  const TALKING_KEY = `agon-talking ${location.pathname}`;
  const MOST_RESTORING_MS = 4000;

  const find = (id) => document.getElementById(id);
  const root = document.documentElement;

  function showTheme(name) {
    for (const element of [root, document.body]) element.classList.toggle("dark", name === "dark");
    root.style.colorScheme = name;
  }

  function storedTheme() {
    try {
      return localStorage.getItem(THEME_KEY);
    } catch {
      return null;
    }
  }

  function toggleTheme() {
    const next = document.body.classList.contains("dark") ? "light" : "dark";
    try {
      localStorage.setItem(THEME_KEY, next);
    } catch {
      // Storage may be forbidden in private windows; then the choice holds for this page only.
    }
    showTheme(next);
  }

  // Gradio sets the theme of the system when it builds the page.
  function keepTheme() {
    if (new URLSearchParams(location.search).has("__theme")) return;
    const keep = () => {
      const theme = storedTheme();
      if (theme && document.body.classList.contains("dark") !== (theme === "dark")) showTheme(theme);
    };
    keep();
    new MutationObserver(keep).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  }

  function isTyping(target) {
    if (target.isContentEditable || target.tagName === "SELECT") return true;
    if ((target.tagName !== "TEXTAREA" && target.tagName !== "INPUT") || target.type === "checkbox") return false;
    // After a question the cursor is still in the prompt box. While the box is empty, arrow keys have no effect there.
    return target.value !== "" || !target.closest("#prompt");
  }

  let votesSince = 0;

  function onKey(event) {
    // Gradio sends on Enter alone; Ctrl or Cmd with Enter sends too, as in editors of several lines.
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.closest?.("#prompt")) {
      event.preventDefault();
      find("send")?.click();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.isComposing || event.repeat) return;
    if (event.key === "/" && !isTyping(event.target) && event.target.tagName !== "TEXTAREA") {
      const box = document.querySelector("#prompt textarea");
      if (box) {
        event.preventDefault();
        box.focus();
      }
      return;
    }
  }

  // Shift with an arrow key votes, except where it selects text. Without Shift the arrow keys only move between the
  // buttons, and only while one of them has the focus: they scroll everywhere else.
  function onVoteKey(event) {
    const id = VOTE_KEYS[event.key];
    if (id === undefined || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
    const focused = event.target.closest?.("#votes button");
    if (!event.shiftKey) {
      if (focused) moveBetweenVotes(focused, event);
      return;
    }
    if (isTyping(event.target) || isInText()) return;
    const button = find(id);
    if (!button || button.disabled || performance.now() - votesSince < VOTE_GRACE_MS) return;
    event.preventDefault();
    button.click();
  }

  function moveBetweenVotes(focused, event) {
    const buttons = [...document.querySelectorAll("#votes button")];
    const step = event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 1;
    event.preventDefault();
    buttons[(buttons.indexOf(focused) + step + buttons.length) % buttons.length].focus();
  }

  // Whether text of the conversation is selected, or the place of a click in it is where a selection would begin.
  function isInText() {
    const place = getSelection()?.anchorNode;
    return Boolean(place && find("thread")?.contains(place));
  }

  // The dock covers the end of the page, so the page is made longer by the height of the dock.
  const dockSize = new ResizeObserver(([entry]) => {
    root.style.setProperty("--agon-dock", `${Math.ceil(entry.target.getBoundingClientRect().height)}px`);
  });
  let watchedDock = null;
  let numQuestions = 0;
  let mayBeLow = false; // the first question is there, and the introduction above it may not be gone yet

  // The next load of this page hides its introduction while the conversation is fetched again (first_paint.js).
  function noteTalking(isTalking) {
    root.classList.remove("agon-restoring");
    try {
      if (isTalking) localStorage.setItem(TALKING_KEY, "yes");
      else localStorage.removeItem(TALKING_KEY);
    } catch {
      // Without storage the introduction is seen until the conversation is there.
    }
  }

  // Nothing was restored: the battle is gone, or the server did not answer in time.
  function endRestoring() {
    if (root.classList.contains("agon-restoring") && document.querySelector("#heads p.agon-said")) noteTalking(false);
  }

  // The height of what stays at the top of the window; in a low one nothing does.
  function stuckHeight() {
    const isStuck = (element) => element && getComputedStyle(element).position === "sticky";
    const header = isStuck(find("agon-top")) ? parseFloat(getComputedStyle(root).getPropertyValue("--agon-header")) : 0;
    return header + (isStuck(find("heads")) ? find("heads").getBoundingClientRect().height : 0);
  }

  // A new question is scrolled to the top once: the answers grow downwards and nothing above them moves.
  function placeQuestion() {
    const thread = find("thread");
    const questions = thread ? thread.querySelectorAll(".user-row") : [];
    if (questions.length !== numQuestions) {
      const isNew = questions.length > numQuestions;
      numQuestions = questions.length;
      noteTalking(numQuestions > 0);
      mayBeLow = isNew && numQuestions === 1;
      if (numQuestions > 1) return scrollToTop(thread, questions[numQuestions - 1]);
      // Also after a second question was refused and went back into the box.
      root.style.removeProperty("--agon-room");
      if (!isNew) window.scrollTo(0, 0);
    }
    if (mayBeLow && !isInviting()) {
      mayBeLow = false;
      requestAnimationFrame(() => requestAnimationFrame(() => placeFirst(thread, questions[0])));
    }
  }

  // Gradio hides the parts of an empty page one after another.
  function isInviting() {
    return [...document.querySelectorAll(".agon-intro, .agon-example")].some((part) => part.checkVisibility());
  }

  // The first question stays where it is, unless what stands above it on the page of chats leaves its answer no room.
  function placeFirst(thread, question) {
    if (numQuestions !== 1 || !question.isConnected) return;
    const top = stuckHeight();
    const bottom = window.innerHeight - (find("dock")?.getBoundingClientRect().height ?? 0);
    if (question.getBoundingClientRect().bottom > (top + bottom) / 2) scrollToTop(thread, question);
  }

  function scrollToTop(thread, question) {
    const stuck = stuckHeight();
    const offset = question.getBoundingClientRect().top - thread.getBoundingClientRect().top;
    // Relative to the height of the dock, which changes when the vote bar appears and disappears.
    root.style.setProperty("--agon-room", `calc(${Math.ceil(offset - stuck)}px + 100vh - var(--agon-dock) - 40px)`);
    const y = question.getBoundingClientRect().top + window.scrollY - stuck;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    window.scrollTo({ top: y, behavior: calm ? "auto" : "smooth" });
  }

  // Where the names of the pages are wider than the window, that of this page is scrolled into view, once.
  function showPlace(current) {
    const nav = current.closest("nav");
    if (!nav || nav.dataset.placed !== undefined) return;
    nav.dataset.placed = "";
    nav.scrollLeft = current.offsetLeft + current.offsetWidth - nav.clientWidth;
  }

  // Gradio gives all pages the same title; browser tabs and histories need one title per page.
  function nameTab() {
    const current = document.querySelector(".agon-header a[aria-current]") ?? document.querySelector(".agon-about h1");
    if (!current) return;
    showPlace(current);
    const title = location.pathname === `${ROOT}/` ? BRAND : `${current.textContent} - ${BRAND}`;
    if (document.title !== title) document.title = title;
  }

  // Screen readers announce changes only in an element that exists already; Gradio replaces the heads every time.
  const live = document.createElement("p");
  live.style.cssText = "position:absolute;width:1px;height:1px;margin:0;overflow:hidden;clip-path:inset(50%)";
  live.setAttribute("role", "status");

  function speak() {
    const said = document.querySelector("#heads p.agon-said")?.textContent ?? "";
    if (live.textContent !== said) live.textContent = said;
  }

  // A new board replaces the markup of the old one. What was unfolded stays so, and a wide picture stays where it was
  // scrolled to.
  const unfolded = new Set();
  const scrolled = new Map();

  function onToggle({ target }) {
    if (!target.id || !target.matches(".agon-why, .agon-thoughts")) return;
    if (target.open) unfolded.add(target.id);
    else unfolded.delete(target.id);
  }

  // The event above comes later than the click, and markup that is written meanwhile would be closed.
  function onUnfold({ target }) {
    const fold = target.closest?.("summary")?.parentElement;
    if (!fold?.id || !fold.matches(".agon-why, .agon-thoughts")) return;
    if (fold.open) unfolded.delete(fold.id);
    else unfolded.add(fold.id);
  }

  function onScroll({ target }) {
    if (target.classList?.contains("agon-scroll")) scrolled.set(target.getAttribute("aria-label"), target.scrollLeft);
  }

  function keepPlaces() {
    for (const id of unfolded) find(id)?.setAttribute("open", "");
    for (const box of document.querySelectorAll(".agon-scroll:not([data-kept])")) {
      box.dataset.kept = "";
      box.scrollLeft = scrolled.get(box.getAttribute("aria-label")) ?? 0;
    }
  }

  // The element that stands in the new markup where the focused one stood in the old.
  function twinOf(old) {
    if (old.id) return find(old.id);
    if (old.matches("summary")) return find(old.parentElement?.id)?.querySelector("summary");
    const label = old.getAttribute("aria-label");
    return label && [...document.querySelectorAll(".agon-scroll")].find((box) => box.getAttribute("aria-label") === label);
  }

  // When the focused button disappears (a vote, an example, Stop), the focus moves to the prompt box. Not on phones,
  // where focus would open the on-screen keyboard.
  let lastFocused = null;

  function keepFocus() {
    if (!lastFocused || lastFocused.isConnected || document.activeElement !== document.body) return;
    const twin = twinOf(lastFocused);
    lastFocused = null;
    if (twin) return twin.focus({ preventScroll: true });
    if (matchMedia("(hover: hover)").matches) document.querySelector("#prompt textarea")?.focus({ preventScroll: true });
  }

  function onChange() {
    speak();
    keepPlaces();
    keepFocus();
    nameTab();
    for (const fold of document.querySelectorAll(".agon-fold > button")) {
      const isOpen = String(fold.classList.contains("open"));
      if (fold.getAttribute("aria-expanded") !== isOpen) fold.setAttribute("aria-expanded", isOpen);
    }
    const dock = find("dock");
    if (dock && dock !== watchedDock) {
      watchedDock = dock;
      dockSize.observe(dock);
    }
    const hasVotes = find("vote-left") !== null;
    if (hasVotes && votesSince === 0) {
      votesSince = performance.now();
      for (const [key, id] of Object.entries(VOTE_KEYS)) find(id)?.setAttribute("aria-keyshortcuts", `Shift+${key}`);
    }
    if (!hasVotes) votesSince = 0;
    placeQuestion();
    endRestoring();
  }

  function start() {
    keepTheme();
    document.body.append(live);
    setTimeout(() => root.classList.remove("agon-restoring"), MOST_RESTORING_MS);
    document.addEventListener("focusin", (event) => (lastFocused = event.target));
    document.addEventListener("keydown", onKey);
    document.addEventListener("keydown", onVoteKey);
    document.addEventListener("toggle", onToggle, true);
    document.addEventListener("click", onUnfold);
    document.addEventListener("scroll", onScroll, true);
    document.addEventListener("click", (event) => {
      if (event.target.closest?.("[data-agon=theme]")) toggleTheme();
    });
    new MutationObserver(onChange).observe(document.body, { childList: true, subtree: true });
    onChange();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
