// Before the first paint: the theme that the visitor has chosen, and whether a conversation will be fetched again, so that
// neither the other theme nor the introduction is seen for a moment. agon.js goes on from here.
(() => {
  "use strict";

  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function stored(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage may be forbidden in private windows
    }
  }

  function paint() {
    const theme = new URLSearchParams(location.search).get("__theme") ?? stored("agon-theme");
    const isDark = theme === "dark" || (theme !== "light" && prefersDark.matches);
    root.classList.toggle("dark", isDark);
    root.style.colorScheme = isDark ? "dark" : "light";
  }

  paint();
  prefersDark.addEventListener("change", paint);
  if (stored(`agon-talking ${location.pathname}`)) root.classList.add("agon-restoring");
})();
