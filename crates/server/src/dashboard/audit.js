// Who changed what, when and why: the audit log, newest last, as it was written.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { distance, moment, short } from "./format.js";
import { failed, notice } from "./states.js";

const PAGE = 100;

export function audit() {
  const place = h("div");
  const element = h("div", { class: "page" },
    h("div", { class: "page-head" }, h("h1", {}, "Audit"), h("p", { class: "muted" }, "Every write, and every look at a body.")),
    h("section", { class: "card" }, place));
  const body = h("tbody");
  const more = h("button", { type: "button" }, "Show more");
  /** @type {number | string | null} */
  let next = null;
  const ask = async () => {
    try {
      const told = await get(`/api/audit?limit=${PAGE}${next === null ? "" : `&after=${next}`}`);
      next = told.next;
      body.append(...told.entries.map(row));
      more.hidden = next === null || next === undefined;
      if (body.childElementCount === 0) fill(place, notice("Nothing was written yet", h("p", {}, "Resolving, erasing and purging are listed here, with who did it and why.")));
      else if (!body.isConnected) fill(place, frame(body), more);
    } catch (error) {
      fill(place, failed(error, () => void ask()));
    }
  };
  more.addEventListener("click", () => void ask());
  void ask();
  return { title: "Audit", element, update: () => undefined };
}

/** @param {HTMLElement} body */
function frame(body) {
  const heads = ["When", "Who", "What", "Record", "Why", "Answer"];
  return h("div", { class: "table-frame" }, h("table", { class: "records" }, h("caption", { class: "unseen" }, "Audit log"),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body));
}

/** @param {any} entry */
function row(entry) {
  const cell = (/** @type {string} */ label, /** @type {Node | string | null} */ value) => h("td", { "data-label": label }, value);
  return h("tr", {},
    h("th", { scope: "row" }, h("time", { datetime: entry.at, title: moment(entry.at) }, distance(entry.at))),
    cell("Who", [entry.who, entry.from].filter(Boolean).join(", ")),
    cell("What", entry.action),
    cell("Record", entry.id ? h("a", { class: "id", href: `#/records/${entry.id}` }, short(entry.id)) : "–"),
    cell("Why", entry.why ?? "–"),
    cell("Answer", entry.answer ?? "not known"));
}
