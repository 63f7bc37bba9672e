// Keeps a page alive while its server is away: says so in one line, reloads when the server is back, and keeps the text
// that was typed and not sent. The reloaded page restores its battle from the browser's storage.
//
// It looks at the requests of Gradio's page. Gradio by itself notices only a broken event stream, shows an error, and
// does not notice the restart of a server that it has no stream to.
(() => {
  "use strict";

  const JOIN = "/gradio_api/queue/join";
  const DATA = "/gradio_api/queue/data";
  const HEARTBEAT = "/gradio_api/heartbeat/";
  const UNKNOWN = /^data: \{"msg":"unexpected_error".*"session_not_found":true/m; // the server forgot this page's events
  const COMPLETED = /^data: \{"msg":"process_completed".*?"event_id":"(\w+)"/m;
  const CLOSED = /^data: \{"msg":"close_stream"/m;
  const SERVER = "/gradio_api/app_id"; // a number that every start of the server draws
  const TYPED_KEY = `agon-typed ${location.pathname}`;
  const LOOK_EVERY_MS = 700;
  const CROWDED_MS = 5000;
  const MOST_JOINS = 6; // attempts to send an event that was refused because of overload

  const send = window.fetch.bind(window);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  let isLeaving = false; // the visitor leaves the page: broken requests mean nothing
  let isLooking = false;
  let mustReload = false; // Gradio has given up the events of this page
  let serverAtFirst = null;

  async function server() {
    const answer = await send(SERVER, { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return (await answer.json()).app_id;
  }

  function showAway(isAway) {
    document.body.classList.toggle("agon-is-away", isAway);
    let line = document.getElementById("agon-away");
    if (!line) {
      line = document.createElement("p");
      line.id = "agon-away";
      line.setAttribute("role", "status");
      document.body.append(line);
    }
    line.textContent = isAway ? document.querySelector("meta[name=agon-reconnecting]").content : "";
  }

  // Waits until the server answers; then reloads if it is another one or Gradio has given up.
  async function look(firstPauseMs = 0) {
    if (isLeaving || isLooking) return;
    isLooking = true;
    await pause(firstPauseMs);
    for (;;) {
      try {
        const now = await server();
        if (isLeaving) return;
        if (mustReload || (serverAtFirst !== null && now !== serverAtFirst)) {
          showAway(true);
          await pause(Math.random() * LOOK_EVERY_MS); // not all pages at once
          location.reload();
          return;
        }
        break;
      } catch {
        if (isLeaving) return;
        showAway(true);
        await pause(LOOK_EVERY_MS);
      }
    }
    showAway(false);
    isLooking = false;
  }

  function eventsBroke(firstPauseMs = 0) {
    mustReload = true;
    if (!isLeaving) showAway(true);
    look(firstPauseMs);
  }

  // The same response, with a call when its body ends or breaks.
  function watched(response, onEnd) {
    const reader = response.body.getReader();
    const body = new ReadableStream({
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) return controller.enqueue(value);
          controller.close();
          onEnd(true);
        } catch (error) {
          controller.error(error);
          if (error.name !== "AbortError") onEnd(false);
        }
      },
      cancel: (reason) => reader.cancel(reason),
    });
    return sameHead(response, body);
  }

  const sameHead = ({ status, statusText, headers }, body) => new Response(body, { status, statusText, headers });

  // Events that were sent and are not completed. The server ends a stream after the last event that it knows. Gradio
  // opens a new one only for an event that was answered after it has read that end: an event that crosses the end on
  // its way would wait for ever, and so would every later one of its kind. Such an end is kept from Gradio here, and
  // the stream goes on with a new connection.
  const running = new Set();
  const early = new Set(); // completed before their ids were known
  let numSending = 0;

  function noteCompleted(id) {
    if (!running.delete(id) && numSending > 0) early.add(id);
  }

  async function noteSent(response) {
    const id = response.ok ? (await response.clone().json()).event_id : undefined;
    if (id !== undefined && !early.delete(id)) running.add(id);
  }

  // The event stream as Gradio reads it: whole messages, across connections.
  function eventStream(first, connect) {
    const decoder = new TextDecoder();
    const encoder = new TextEncoder();
    let reader = first.body.getReader();
    let rest = "";
    let mustConnect = false;

    // Gradio's part of what has arrived.
    function pass(text) {
      const messages = (rest + text).split("\n\n");
      rest = messages.pop();
      return messages.map((message) => (isForGradio(message) ? `${message}\n\n` : "")).join("");
    }

    function isForGradio(message) {
      if (UNKNOWN.test(message)) eventsBroke();
      const completed = COMPLETED.exec(message);
      if (completed) noteCompleted(completed[1]);
      if (!CLOSED.test(message)) return true;
      mustConnect = running.size + numSending > 0;
      return !mustConnect;
    }

    async function pull(controller) {
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (!done) {
            const text = pass(decoder.decode(value, { stream: true }));
            if (text) return controller.enqueue(encoder.encode(text));
          } else if (mustConnect) {
            mustConnect = false;
            const next = await connect();
            if (!next.ok) throw new TypeError(`status ${next.status}`);
            reader = next.body.getReader();
          } else {
            return controller.close();
          }
        }
      } catch (error) {
        controller.error(error);
        if (error.name !== "AbortError") eventsBroke();
      }
    }
    return sameHead(first, new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) }));
  }

  async function sendEvent(input, init) {
    for (let attempt = 1; ; attempt++) {
      const response = await send(input, init);
      const wait = Number(response.headers.get("Retry-After"));
      if (![429, 503].includes(response.status) || !wait || attempt === MOST_JOINS) return response;
      await pause(1000 * Math.min(wait, 5));
    }
  }

  window.fetch = async (input, init) => {
    const path = new URL(input.url ?? input, location.href).pathname;
    const isEvent = path.endsWith(JOIN);
    const isData = path.endsWith(DATA);
    if (!isEvent && !isData && !path.includes(HEARTBEAT)) return send(input, init);
    let response;
    if (isEvent) numSending++;
    try {
      response = await (isEvent ? sendEvent(input, init) : send(input, init));
      if (isEvent) await noteSent(response);
    } catch (error) {
      if (error.name !== "AbortError") isEvent || isData ? eventsBroke() : look();
      throw error;
    } finally {
      if (isEvent && --numSending === 0) early.clear();
    }
    if (isEvent) {
      if ([502, 504].includes(response.status)) eventsBroke();
      return response;
    }
    if (!response.ok) {
      if (isData) eventsBroke([429, 503].includes(response.status) ? CROWDED_MS : 0);
      return response;
    }
    return isData ? eventStream(response, () => send(input, init)) : watched(response, () => look());
  };

  function keepTyped() {
    isLeaving = true;
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

  window.addEventListener("pagehide", keepTyped);
  window.addEventListener("pageshow", () => (isLeaving = false));
  restoreTyped();
  server().then((now) => (serverAtFirst = now), () => look());
})();
