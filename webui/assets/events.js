// The requests of Gradio's page, made safe against a network that is cut and a server that is restarted: an event is sent
// until it has arrived, and is taken once; the stream of updates goes on where it was. Gradio by itself reloads the page
// when its stream breaks, and holds a connection open for each page, of which a browser has six.
(() => {
  "use strict";

  const JOIN = "/gradio_api/queue/join";
  const DATA = "/gradio_api/queue/data";
  const HEARTBEAT = "/gradio_api/heartbeat/";
  const KEY_HEADER = "X-Agon-Event"; // the server takes one event of a key
  const UNKNOWN = /^data: \{"msg":"unexpected_error".*"session_not_found":true/m; // the server forgot this page's events
  const OF_EVENT = /^data: \{"msg":"(\w+)".*?"event_id":"(\w+)"/m;
  const ANSWERS = ["process_generating", "process_completed"];
  const CLOSED = /^data: \{"msg":"close_stream"/m;
  const NUMBER = /^id: (\d+)\n/;
  const SILENT_MS = 15000; // the server says something every three seconds
  const MOST_REFUSALS = 6; // of an event, because of overload
  const MAX_WAIT_S = 5;

  const connection = window.agonConnection;
  const { send, pause } = connection;

  // Events that were sent and are not completed. The server ends a stream after the last event that it knows. Gradio
  // opens a new one only for an event that was answered after it has read that end: an event that crosses the end on
  // its way would wait for ever, and so would every later one of its kind. Such an end is kept from Gradio here, and
  // the stream goes on with a new connection.
  const running = new Map(); // by the id that Gradio knows
  const sending = new Set();
  const early = new Set(); // completed before their ids were known
  const oldIds = new Map(); // of events that were sent to another server, by their ids there
  let lastNumber = 0; // of the newest message that has arrived; a new session goes on with higher ones

  // What an event brings along is all that another server has of it: what this page's own server remembers is null here.
  // One that brings nothing is sent there too, beside one that does: it says what the page shows, and Gradio waits for it.
  function newEvent(input, init) {
    const headers = new Headers(init?.headers);
    headers.set(KEY_HEADER, newKey());
    const brings = JSON.parse(init.body).data.some((value) => value !== null);
    return { input, init: { ...init, headers }, brings, isAnswered: false };
  }

  connection.canGoOn = () => {
    const events = [...sending, ...running.values()];
    return events.some((event) => event.brings) && events.every((event) => !event.isAnswered);
  };

  connection.goOn = async () => {
    lastNumber = 0; // the other server counts its own messages
    for (const [id, event] of running) {
      const response = await send(event.input, event.init);
      if (!response.ok) throw new TypeError(`status ${response.status}`);
      oldIds.set((await response.json()).event_id, id);
    }
  };

  function noteMessage(kind, id) {
    if (!ANSWERS.includes(kind)) return;
    const event = running.get(id);
    if (event) event.isAnswered = true;
    if (kind === "process_completed" && !running.delete(id) && sending.size > 0) early.add(id);
  }

  async function noteSent(event, response) {
    const id = response.ok ? (await response.clone().json()).event_id : undefined;
    if (id !== undefined && !early.delete(id)) running.set(id, event);
  }

  function newKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  const isAbort = (error) => error.name === "AbortError" || connection.isLeaving;
  const isAway = (response) => [502, 504].includes(response.status);
  const isGone = (response) => isAway(response) && response.headers.has("X-Agon-Server"); // another server said so
  const waitOf = (response) => Math.min(Number(response.headers.get("Retry-After")) || 0, MAX_WAIT_S);

  // A response whose body has arrived: a connection can break between head and body, too.
  async function whole(response) {
    const { status, statusText, headers } = response;
    return new Response(await response.arrayBuffer(), { status, statusText, headers });
  }

  // Sends an event until the server has it and has said so.
  async function sendEvent({ input, init }) {
    for (let refusals = 0; ; ) {
      let response;
      try {
        response = await whole(await send(input, init));
      } catch (error) {
        if (isAbort(error)) throw error;
        await connection.back();
        continue;
      }
      if (isGone(response)) {
        await connection.back();
        continue;
      }
      const isRefused = [429, 503].includes(response.status) && waitOf(response) > 0;
      if (!isAway(response) && !(isRefused && ++refusals < MOST_REFUSALS)) return response;
      await pause(1000 * (waitOf(response) || 1));
    }
  }

  async function noteEvent(input, init) {
    const event = newEvent(input, init);
    sending.add(event);
    try {
      const response = await sendEvent(event);
      await noteSent(event, response);
      return response;
    } finally {
      sending.delete(event);
      if (sending.size === 0) early.clear();
    }
  }

  // A connection to the stream, from the first message on that has not arrived.
  async function connect(input, init) {
    const url = new URL(input.url ?? input, location.href);
    for (;;) {
      url.searchParams.set("after", String(lastNumber));
      try {
        const response = await send(url, init);
        if (response.ok) return response;
        if (isGone(response)) {
          await connection.back();
          continue;
        }
        if (![429, 502, 503, 504].includes(response.status)) throw new TypeError(`status ${response.status}`);
        await pause(1000 * (waitOf(response) || 1));
      } catch (error) {
        if (isAbort(error)) throw error;
        await pause(200);
        await connection.back();
      }
    }
  }

  // The next piece of a stream. A connection that is silent for long is dead, even if no end of it has arrived.
  function nextPiece(reader) {
    let timer;
    const silence = new Promise((_, reject) => {
      timer = setTimeout(() => {
        reader.cancel().catch(() => {});
        reject(new TypeError("silent"));
      }, SILENT_MS);
    });
    return Promise.race([reader.read(), silence]).finally(() => clearTimeout(timer));
  }

  // The event stream as Gradio reads it: whole messages, each once, across connections.
  function eventStream(first, reconnect) {
    const encoder = new TextEncoder();
    let decoder = new TextDecoder();
    let reader = first.body.getReader();
    let rest = "";
    let isOver = false;

    // Gradio's part of what has arrived.
    function pass(text) {
      const messages = (rest + text).split("\n\n");
      rest = messages.pop();
      return messages.map(forGradio).join("");
    }

    function forGradio(message) {
      const number = NUMBER.exec(message);
      if (number) {
        if (Number(number[1]) <= lastNumber) return "";
        lastNumber = Number(number[1]);
        message = message.slice(number[0].length);
      }
      if (!message.startsWith("data:")) return "";
      if (UNKNOWN.test(message)) {
        connection.lost();
        return "";
      }
      const [, kind, id] = OF_EVENT.exec(message) ?? [];
      if (oldIds.has(id)) message = message.replace(`"event_id":"${id}"`, `"event_id":"${oldIds.get(id)}"`);
      if (id) noteMessage(kind, oldIds.get(id) ?? id);
      if (CLOSED.test(message)) {
        isOver = running.size + sending.size === 0;
        if (!isOver) return "";
      }
      return `${message}\n\n`;
    }

    async function nextText() {
      for (;;) {
        try {
          const { done, value } = await nextPiece(reader);
          if (!done) return pass(decoder.decode(value, { stream: true }));
          if (isOver) return null;
        } catch (error) {
          if (isAbort(error)) throw error;
          await connection.back();
        }
        reader = (await reconnect()).body.getReader();
        decoder = new TextDecoder();
        rest = "";
      }
    }

    async function pull(controller) {
      try {
        for (;;) {
          const text = await nextText();
          if (text === null) return controller.close();
          if (text) return controller.enqueue(encoder.encode(text));
        }
      } catch (error) {
        controller.error(error);
      }
    }
    const { status, statusText, headers } = first;
    const body = new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) });
    return new Response(body, { status, statusText, headers });
  }

  // Gradio keeps its session by a connection that is never closed; here connection.js tells the server now and then.
  function heartbeat(path, signal) {
    connection.session = decodeURIComponent(path.slice(path.indexOf(HEARTBEAT) + HEARTBEAT.length));
    const body = new ReadableStream({
      start(controller) {
        signal?.addEventListener("abort", () => controller.close(), { once: true });
      },
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  }

  window.fetch = async (input, init) => {
    const path = new URL(input.url ?? input, location.href).pathname;
    if (path.includes(HEARTBEAT)) return heartbeat(path, init?.signal);
    if (path.endsWith(JOIN)) return noteEvent(input, init);
    if (path.endsWith(DATA)) return eventStream(await connect(input, init), () => connect(input, init));
    return send(input, init);
  };
})();
