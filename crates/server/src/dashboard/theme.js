// Runs before the first paint, so that a chosen theme does not flash: no module, and nothing else in it.
(() => {
  try {
    const chosen = localStorage.getItem("onlyonce.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden: then the system's choice holds.
  }
})();
