// The promise in force and the configuration that it follows from.

import { fill, h } from "./dom.js";
import { moment } from "./format.js";
import { live } from "./live.js";

export function promise() {
  const place = h("div", { class: "columns" });
  const element = h("div", { class: "page" }, h("div", { class: "page-head" }, h("h1", {}, "Promise and configuration")), place);
  let shown = "";
  const update = () => {
    const told = live.overview;
    if (!told) return;
    const text = JSON.stringify([told.promise, told.configuration, told.started_at]);
    if (text !== shown) {
      fill(place,
        h("div", { class: "column" }, inForce(told.promise ?? {})),
        h("div", { class: "column" }, configuration(told)));
    }
    shown = text;
  };
  return { title: "Promise", element, update };
}

/** @param {any} promised */
function inForce(promised) {
  const { survives = [], does_not_survive: not = [], unknown = [], fail_open: open = [], shadow = [] } = promised;
  const line = (/** @type {string} */ tone, /** @type {string} */ name, /** @type {(Node | string | null)[]} */ ...text) =>
    h("li", { "data-tone": tone }, h("strong", {}, name), h("span", {}, ...text));
  return h("section", { class: "card", "aria-label": "Promise in force" }, h("h2", {}, "Promise in force"),
    h("p", { class: "lead" }, "For one caller and key: at most one attempt at a time; a recorded answer never changes while it is kept. If nobody can know whether the work happened, that is the answer, and nobody guesses."),
    h("ul", { class: "promises" },
      line(not.length > 1 ? "warn" : "good", "Store", h("code", {}, promised.store ?? "–"), survives.length > 0 ? ` survives ${survives.join(" and ")}` : " protects for as long as this process lives", not.length > 0 ? `, but not ${not.join(" or ")}.` : "."),
      promised.store_remark ? line("warn", "Remark", promised.store_remark) : null,
      unknown.map((/** @type {any} */ under) => line(under.policy === "rerun" ? "warn" : "good", `Unknown: ${under.policy}`, `${under.guarantee} (${(under.routes ?? []).join(", ")})`)),
      open.length > 0 ? line("bad", "Store away", `RUNS UNPROTECTED, marked as such: ${open.join(", ")}`) : line("good", "Store away", "Keyed requests are refused with 503; the upstream is not touched."),
      shadow.length > 0 ? line("bad", "Shadow", `Nothing is enforced, only counted and logged: ${shadow.join(", ")}`) : null,
      "replays_are_authorised" in promised
        ? line("good", "Replays", promised.replays_are_authorised ? "auth_url is asked before every replay." : "A stored answer is given to whoever shows the same credential; no auth_url checks that it is still valid.")
        : null,
      line("good", "Errors", "A released error response trusts the application to have rolled back.")));
}

/** @param {any} told */
function configuration(told) {
  return h("section", { class: "card", "aria-label": "Configuration in force" }, h("h2", {}, "Configuration in force"),
    h("p", { class: "muted" }, `Of ${told.command}, version ${told.version}, started ${moment(told.started_at)}. Secrets are hidden.`),
    h("pre", { class: "toml", tabindex: "0" }, h("code", {}, told.configuration ?? "")));
}
