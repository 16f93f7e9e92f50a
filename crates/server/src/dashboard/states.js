// What is shown when there is nothing to show: each says what it means and what to do.

import { Problem, token } from "./api.js";
import { h, s } from "./dom.js";
import { live } from "./live.js";
import { input } from "./resolve.js";

/** @param {string} state */
export function badge(state) {
  return h("span", { class: `badge state-${state}` }, state.replace("-", " "));
}

/** @param {string} title @param {...(Node | string | null)} body */
export function notice(title, ...body) {
  return h("div", { class: "notice" },
    s("svg", { viewBox: "0 0 48 48", width: 44, height: 44, "aria-hidden": "true" },
      s("circle", { cx: 24, cy: 24, r: 17, class: "ring" }),
      s("path", { d: "M24 7a17 17 0 0 1 17 17", class: "arc" })),
    h("h2", {}, title), ...body.filter((part) => part !== null));
}

/** No record was ever made: how to make one. */
export function nothingYet() {
  const { address, line } = tryThis();
  return notice("No records yet",
    h("p", {}, address === "" ? "Records appear here with the first work that carries a key." : "They appear with the first request that carries a key. Try one, twice:"),
    line ? h("pre", { class: "shell", tabindex: "0" }, h("code", {}, line)) : null);
}

/** A line for a shell, from the configuration in force. */
function tryThis() {
  const { command = "proxy", configuration = "" } = live.overview ?? {};
  const section = configuration.split(/^\[/m).find((/** @type {string} */ part) => part.startsWith(`${command}]`)) ?? "";
  const address = /^listen\s*=\s*"([^"]+)"/m.exec(section)?.[1] ?? "";
  if (command === "proxy") {
    const host = address && !address.endsWith(":0") ? address : "ADDRESS";
    return { address: host, line: `curl -i http://${host}/payments \\\n  -H 'Idempotency-Key: "try-1"' --json '{"amount": 100}'` };
  }
  return { address: "", line: "" };
}

/** @param {unknown} error @param {() => void} again */
export function failed(error, again) {
  const problem = error instanceof Problem ? error : new Problem(0, String(error));
  const retry = h("button", { type: "button", class: "primary", "data-again": true, onclick: again }, "Try again");
  if (problem.isDenied) return tokenForm();
  if (problem.isUnreachable) {
    return notice("The process does not answer", h("p", {}, "It may have ended, or be starting anew. Look at its log, and whether this address is still the right one."), retry);
  }
  if (problem.isStoreAway) {
    return notice("The store does not answer", h("p", {}, problem.message), h("p", {}, storeAdvice()), retry);
  }
  if (problem.status === 404) return absent();
  return notice(problem.title || "That did not work", h("p", {}, problem.message), retry);
}

export function absent() {
  return notice("There is no such record", h("p", {}, "It may have expired and been swept: records are removed when their retention ends. Or the address is not whole: an id has 64 hexadecimal digits."));
}

/** What to do about a store that is away, and what happens meanwhile. */
export function storeAdvice() {
  const open = live.overview?.promise?.fail_open ?? [];
  const meanwhile = open.length > 0
    ? `Requests to ${open.join(", ")} run unprotected meanwhile; all others with a key are refused with 503.`
    : "Requests with a key are refused with 503 meanwhile, and nothing runs unprotected.";
  return `Check that the store runs and can be reached from this machine. ${meanwhile} This page goes on by itself once it is back.`;
}

/** Asks for the token, which stays in this tab. */
export function tokenForm() {
  const field = input("token", "Admin token", { type: "password", required: true, autocomplete: "off" });
  const trouble = h("p", { class: "trouble", role: "alert" });
  const form = h("form", { class: "stack token-form" }, field.element,
    h("p", { class: "muted" }, "It is ", h("code", {}, "admin.token"), " of the configuration, or ", h("code", {}, "ONLYONCE_ADMIN_TOKEN"), ". It stays in this tab and goes when the tab is closed."),
    trouble, h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Open")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // What no header can carry was never a token.
    token.set(/^[\x21-\x7e]+$/.test(field.value()) ? field.value() : "-");
    await live.again();
    if (live.trouble?.isDenied) {
      trouble.textContent = "That token is not the right one.";
      token.set(null);
      field.field.select();
    }
  });
  return notice("A token is needed", form);
}
