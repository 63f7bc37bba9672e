// The admin page: signs in with the token, shows the desk that the server renders, and sends its forms.
// The token stays in this tab's storage until the tab is closed or the administrator signs out.
(() => {
  "use strict";

  const ROOT = document.querySelector("meta[name=agon-root]").content; // the path prefix
  const TOKEN_KEY = `agon-admin-token${ROOT}`; // arenas under other prefixes of this host have other tokens
  const PATH = `${ROOT}/admin`;
  const REFUSED = [401, 403];

  const find = (id) => document.getElementById(id);
  const main = find("agon-admin");
  const desk = find("desk");
  const signIn = find("sign-in");
  let before = ""; // the page of votes that is shown: those before this id

  function token() {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  }

  function say(sentence, isFailure = false) {
    const line = find("said");
    line.classList.toggle("agon-admin-failure", isFailure);
    line.textContent = sentence;
  }

  async function ask(path, options = {}) {
    const headers = { ...(token() ? { Authorization: `Bearer ${token()}` } : {}), ...options.headers };
    let answer;
    try {
      answer = await fetch(PATH + path, { cache: "no-store", ...options, headers });
    } catch {
      throw new Error(main.dataset.away);
    }
    if (answer.ok) return answer;
    if (REFUSED.includes(answer.status)) {
      const wasShown = token() !== "";
      sessionStorage.removeItem(TOKEN_KEY);
      desk.replaceChildren();
      signIn.hidden = false;
      find("token").focus();
      throw new Error(wasShown ? main.dataset.wrong : "");
    }
    const body = await answer.json().catch(() => ({}));
    throw new Error(body.error?.message ?? main.dataset.away);
  }

  // The server renders times in UTC; the reader's own time is shown, UTC in the title.
  function localTimes() {
    for (const time of desk.querySelectorAll("time")) {
      time.title = time.textContent;
      time.textContent = new Date(time.dateTime).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
    }
  }

  async function refresh() {
    const answer = await ask(`/desk?before=${encodeURIComponent(before)}`);
    desk.innerHTML = await answer.text(); // markup of our own server, which escapes every value
    signIn.hidden = true;
    localTimes();
  }

  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    }
  }

  function fieldsOf(form) {
    const fields = Object.fromEntries(new FormData(form));
    for (const input of form.querySelectorAll("input[type=datetime-local]")) {
      const moment = input.value ? new Date(input.value).getTime() / 1000 : "";
      fields[input.name] = String(moment);
    }
    return fields;
  }

  async function act(form) {
    const button = form.querySelector("button");
    const label = form.getAttribute("aria-label");
    button.disabled = true;
    try {
      const body = JSON.stringify({ act: form.dataset.act, fields: fieldsOf(form) });
      await ask("/act", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      await refresh();
      say(main.dataset.done);
      const twin = [...desk.querySelectorAll("form")].find((other) => label && other.getAttribute("aria-label") === label);
      (twin?.querySelector("button") ?? find("said")).focus?.();
    } finally {
      button.disabled = false;
    }
  }

  async function save() {
    const answer = await ask("/actions");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = "agon-actions.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const DEEDS = {
    refresh: async () => {
      say("");
      await refresh();
    },
    "sign-out": async () => {
      sessionStorage.removeItem(TOKEN_KEY);
      location.reload();
    },
    votes: async (button) => {
      before = button.dataset.before;
      await refresh();
      find("votes").focus();
    },
    export: save,
  };

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    say("");
    if (event.target === signIn) {
      sessionStorage.setItem(TOKEN_KEY, find("token").value.trim());
      find("token").value = "";
      attempt(refresh);
    } else if (event.target.dataset.act) {
      attempt(() => act(event.target));
    }
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-do]");
    if (button) attempt(() => DEEDS[button.dataset.do](button));
  });
  attempt(refresh); // a proxy may have named the administrator, or the tab has the token
})();
