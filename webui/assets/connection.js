// Watches the server while a page is open: says in one line when it is away, reloads when another one is there, and keeps
// the text that was typed and not sent. The reloaded page restores its battle from the browser's storage.
// events.js sends and receives; this script knows of no event.
window.agonConnection = (() => {
  "use strict";

  const content = (name) => document.querySelector(`meta[name=agon-${name}]`).content;
  const ALIVE = `${content("root")}/alive`;
  const SERVER_HEADER = "X-Agon-Server";
  const TYPED_KEY = `agon-typed ${location.pathname}`;
  const LOOK_EVERY_MS = 700; // while the server is away
  const QUIET_MS = 800; // a shorter cut is not worth a notice
  const LOOK_VISIBLE_MS = 10000;
  const LOOK_HIDDEN_MS = 60000;
  const ANSWER_MS = 5000;
  const DEPARTURE_MS = 5000; // another page that has not come after this is not waited for

  const send = window.fetch.bind(window);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  // Names the server that has this page's events: a proxy may take the request to another one, which passes it on.
  function sendToServer(input, init) {
    const headers = new Headers(init?.headers ?? input.headers);
    headers.set(SERVER_HEADER, server);
    return send(input, { ...init, headers });
  }

  const connection = {
    send: sendToServer,
    pause,
    session: "", // Gradio's name for this page
    isLeaving: false, // the visitor leaves the page: broken requests mean nothing
    mustReload: false, // events of this page are lost
    canGoOn: () => false, // whether another server can take all events that are under way; events.js knows
    goOn: async () => {}, // sends them to it
    back,
    lost,
  };
  let server = content("server"); // the start of the server that this page talks to
  let looking = null;
  let departedAt = -Infinity; // when the visitor last asked for another page

  async function askServer() {
    const url = `${ALIVE}?session_hash=${encodeURIComponent(connection.session)}`;
    const answer = await sendToServer(url, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return (await answer.json()).server;
  }

  function showAway(isAway) {
    document.body?.classList.toggle("agon-is-away", isAway);
    let line = document.getElementById("agon-away");
    if (!line) {
      if (!isAway || !document.body) return;
      line = document.createElement("p");
      line.id = "agon-away";
      line.setAttribute("role", "status");
      document.body.append(line);
    }
    line.textContent = isAway ? document.querySelector("meta[name=agon-reconnecting]").content : "";
  }

  // Resolves when the server answers. Reloads if another one does, unless an event is under way that the old one has not
  // answered: it goes to the new server, which finds the battle by what the event brings along.
  function back() {
    looking ??= look().finally(() => (looking = null));
    return looking;
  }

  async function look() {
    const since = performance.now();
    for (;;) {
      if (connection.isLeaving) {
        await pause(LOOK_EVERY_MS); // the page may come back
        continue;
      }
      try {
        const now = await askServer();
        const isAnother = now !== server;
        if (connection.mustReload || (isAnother && !connection.canGoOn())) {
          showAway(true);
          await pause(Math.random() * LOOK_EVERY_MS); // not all pages at once
          if (performance.now() - departedAt < DEPARTURE_MS) continue; // a reload would undo the visitor's click
          location.reload();
          return new Promise(() => {});
        }
        if (isAnother) await moveTo(now);
        showAway(false);
        return undefined;
      } catch {
        if (performance.now() - since > QUIET_MS) showAway(true);
        await pause(LOOK_EVERY_MS);
      }
    }
  }

  async function moveTo(another) {
    const before = server;
    server = another;
    try {
      await connection.goOn();
    } catch (error) {
      server = before;
      throw error;
    }
  }

  // Events of this page are lost: it is loaded anew as soon as the server answers.
  function lost() {
    connection.mustReload = true;
    if (!connection.isLeaving) showAway(true);
    back();
  }

  // A page without events notices by itself that its server is away or another one.
  async function watch() {
    for (;;) {
      const every = document.hidden ? LOOK_HIDDEN_MS : LOOK_VISIBLE_MS;
      await pause(every * (0.8 + 0.4 * Math.random()));
      await back();
    }
  }

  function keepTyped() {
    connection.isLeaving = true;
    try {
      const typed = document.querySelector("#prompt textarea")?.value ?? "";
      if (typed) sessionStorage.setItem(TYPED_KEY, typed);
      else sessionStorage.removeItem(TYPED_KEY);
    } catch {
      // Storage may be forbidden in private windows.
    }
  }

  function restoreTyped() {
    let typed = null;
    try {
      typed = sessionStorage.getItem(TYPED_KEY);
      sessionStorage.removeItem(TYPED_KEY);
    } catch {
      return;
    }
    if (!typed) return;
    const waiting = new MutationObserver(() => {
      const box = document.querySelector("#prompt textarea");
      if (!box) return;
      waiting.disconnect();
      if (box.value) return;
      Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(box, typed);
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
    waiting.observe(document.documentElement, { childList: true, subtree: true });
  }

  window.navigation?.addEventListener("navigate", (event) => {
    if (!event.destination.sameDocument && !event.downloadRequest) departedAt = performance.now();
  });
  window.addEventListener("pagehide", keepTyped);
  window.addEventListener("pageshow", () => (connection.isLeaving = false));
  window.addEventListener("online", () => back());
  window.addEventListener("offline", () => back());
  document.addEventListener("visibilitychange", () => document.hidden || back());
  restoreTyped();
  back();
  watch();
  return connection;
})();
