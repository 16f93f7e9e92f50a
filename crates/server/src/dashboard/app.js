// Chooses the page by the address after `#`, says how the process does, and listens to the keyboard.

import { place } from "./api.js";
import { audit } from "./audit.js";
import { isOpen, open } from "./dialog.js";
import { fill, h, say } from "./dom.js";
import { find } from "./find.js";
import { live } from "./live.js";
import { overview } from "./overview.js";
import { promise } from "./promise.js";
import { record } from "./record.js";
import { records } from "./records.js";
import { storeAdvice, tokenForm } from "./states.js";

/** @typedef {{title: string, element: HTMLElement, update: () => void, heard?: () => void}} Page */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
const pulse = /** @type {HTMLElement} */ (document.getElementById("pulse"));
const announcer = /** @type {HTMLElement} */ (document.getElementById("announce"));

/** @type {Page | null} */
let shown = null;
let isDenied = false;

const SHORTCUTS = /** @type {[string, string, () => void][]} */ ([
  ["o", "Overview", () => go("#/")],
  ["r", "Records", () => go("#/records")],
  ["u", "Unknown outcomes", () => go("#/records?state=unknown")],
  ["/", "Find by key", () => go("#/find")],
  ["a", "Audit", () => go("#/audit")],
  ["p", "Promise and configuration", () => go("#/promise")],
  ["j", "Next record", () => step(1)],
  ["k", "Previous record", () => step(-1)],
  ["t", "Light or dark", () => switchTheme()],
  ["?", "This list", () => help()],
]);

/** @param {string} text */
function announce(text) {
  announcer.textContent = text;
}

/** @param {string} where */
function go(where) {
  if (location.hash === where) route();
  else location.hash = where;
}

/** @returns {{name: string, page: Page}} */
function chosen() {
  const [path = "", query = ""] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
  const [, name = "", id = ""] = path.split("/").map(decoded);
  if (name === "records" && id) return { name, page: record({ id, announce }) };
  if (name === "records") return { name, page: records({ query: new URLSearchParams(query), announce }) };
  if (name === "find") return { name, page: find({ go }) };
  if (name === "audit") return { name, page: audit() };
  if (name === "promise") return { name, page: promise() };
  return { name: "overview", page: overview({ announce }) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  if (isDenied) return;
  const { name, page } = chosen();
  const isFirst = shown === null;
  shown = page;
  fill(main, page.element);
  document.title = `${page.title} · onlyonce`;
  for (const link of document.querySelectorAll("[data-page]")) {
    if (link.getAttribute("data-page") === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page.update();
  const first = page.element.querySelector("[data-first]");
  if (first instanceof HTMLElement) first.focus();
  else if (!isFirst) main.focus({ preventScroll: true });
  if (!isFirst) scrollTo(0, 0);
}

/** Where a process has several namespaces, one of them is looked at. */
function offerPlaces() {
  const names = live.overview?.namespaces ?? [];
  if (names.length < 2 || document.getElementById("place")) return;
  const choice = /** @type {HTMLSelectElement} */ (h("select", { id: "place", "aria-label": "Namespace" }, names.map((/** @type {string} */ name) => h("option", {}, name))));
  choice.addEventListener("change", () => {
    place.chosen = choice.value;
    route();
  });
  place.chosen = names[0];
  document.querySelector(".bar-end")?.prepend(choice);
  route();
}

/** Says how the process and its store do. */
function tell() {
  const { trouble, store, overview: told } = live;
  if (trouble?.isDenied) {
    status("denied", "Token needed");
    fill(banner);
    if (!isDenied) {
      isDenied = true;
      fill(main, h("div", { class: "page narrow" }, h("section", { class: "card" }, tokenForm())));
      main.querySelector("input")?.focus();
    }
    return;
  }
  if (isDenied) {
    isDenied = false;
    route();
  }
  if (trouble?.isUnreachable) {
    status("bad", "No answer");
    warn("bad", "The process does not answer.", "It may have ended, or be starting anew. What is shown is what it said last; this page goes on by itself once it is back.");
  } else if (store?.startsWith("stopping")) {
    status("denied", "Stopping");
    warn("warn", "The process is stopping.", "No new work is taken; what runs is finished first.");
  } else if (store) {
    status("bad", "Store away");
    warn("bad", `The store does not answer (${store}).`, storeAdvice());
  } else if (trouble) {
    status("bad", trouble.isStoreAway ? "Store away" : "Trouble");
    warn("bad", trouble.isStoreAway ? `The store does not answer (${trouble.message}).` : trouble.message, trouble.isStoreAway ? storeAdvice() : "");
  } else if (told?.warnings?.length > 0) {
    status("good", "Live");
    warn("warn", "", ...told.warnings);
  } else {
    status("good", "Live");
    fill(banner);
  }
  offerPlaces();
  shown?.update();
}

/** @param {string} tone @param {string} text */
function status(tone, text) {
  if (pulse.textContent !== text) {
    // Only what changed is read out, not every second.
    if (pulse.textContent !== "Connecting") announce(text === "Live" ? "It answers again." : text);
    pulse.dataset.tone = tone;
    say(pulse, text);
    // What failed while it was away is asked again.
    if (tone === "good") for (const again of main.querySelectorAll("[data-again]")) /** @type {HTMLElement} */ (again).click();
  }
}

/** @param {string} tone @param {string} title @param {...string} lines */
function warn(tone, title, ...lines) {
  const text = [title, ...lines].join("\n");
  if (banner.dataset.text === text && banner.childElementCount > 0) return;
  banner.dataset.text = text;
  fill(banner, h("div", { class: "banner", "data-tone": tone }, title && h("strong", {}, title), lines.filter(Boolean).map((one) => h("p", {}, one))));
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remember("onlyonce.theme", theme);
  announce(`The page is ${theme} now.`);
}

/** @param {string} name @param {string} value */
function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Then it holds until the page is closed.
  }
}

let singleKeys = (() => {
  try {
    return localStorage.getItem("onlyonce.keys") !== "off";
  } catch {
    return true;
  }
})();

function help() {
  if (isOpen()) return;
  open({
    title: "Keyboard",
    content: () => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", "data-first": true }));
      box.checked = singleKeys;
      box.addEventListener("change", () => {
        singleKeys = box.checked;
        remember("onlyonce.keys", singleKeys ? "on" : "off");
      });
      return [
        h("dl", { class: "shortcuts" }, SHORTCUTS.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what))),
          h("div", {}, h("dt", {}, h("kbd", {}, "Esc")), h("dd", {}, "Close a dialog, change nothing"))),
        h("label", { class: "check" }, box, h("span", {}, "Single keys do this")),
      ];
    },
  });
}

/** Moves the focus through the records on the page. @param {number} by */
function step(by) {
  const links = [...main.querySelectorAll("tbody a.id")];
  const here = links.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  const next = links[Math.min(Math.max(here + by, 0), links.length - 1)];
  if (next instanceof HTMLElement) next.focus();
}

document.addEventListener("keydown", (event) => {
  const { target } = event;
  const typing = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
  if (!singleKeys || typing || isOpen() || event.ctrlKey || event.metaKey || event.altKey) return;
  const shortcut = SHORTCUTS.find(([key]) => key === event.key);
  if (!shortcut) return;
  event.preventDefault();
  shortcut[2]();
});
// It leads to the content, and is no address of a page.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("theme")?.addEventListener("click", switchTheme);
document.getElementById("help")?.addEventListener("click", help);
addEventListener("hashchange", route);
live.addEventListener("change", tell);
live.addEventListener("event", () => shown?.heard?.());
route();
live.begin();
