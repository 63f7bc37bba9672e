// Pages that are only read: their theme, copying, and wide tables by keyboard. Loaded in the head, before the body.
(() => {
  "use strict";

  const THEME_KEY = "agon-theme";

  function showTheme(isDark) {
    document.documentElement.classList.toggle("dark", isDark);
    document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  }

  function toggleTheme() {
    const isDark = !document.documentElement.classList.contains("dark");
    try {
      localStorage.setItem(THEME_KEY, isDark ? "dark" : "light");
    } catch {
      // Storage may be forbidden in private windows; then the choice holds for this page only.
    }
    showTheme(isDark);
  }

  async function copy(button) {
    const source = document.getElementById(button.dataset.copy);
    const text = source.href || source.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    document.getElementById("said").textContent = button.dataset.done;
  }

  // What is wider than its card is scrolled by keyboard, too.
  function letScroll() {
    for (const box of document.querySelectorAll("main :is(pre, table)")) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  let theme = null;
  try {
    theme = localStorage.getItem(THEME_KEY);
  } catch {
    // The theme of the system, then.
  }
  showTheme(theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-copy]");
    if (button) copy(button);
    else if (target.closest?.("[data-agon=theme]")) toggleTheme();
  });
  addEventListener("load", letScroll);
  addEventListener("resize", letScroll);
})();
