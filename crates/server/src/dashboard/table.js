// Records in a table: one row each, with what can be done about it. On a narrow screen a row becomes a card.

import { h, keep, say } from "./dom.js";
import { bytes, distance, moment, short } from "./format.js";
import { resolve } from "./resolve.js";
import { badge } from "./states.js";

/** @typedef {import("./api.js").StoredRecord} StoredRecord */

/** States that wait for somebody to say what happened. */
const OPEN = ["unknown", "sealed"];

/** What ends next, and when. @param {StoredRecord} record */
function ends(record) {
  if (record.state === "in-flight" && record.lease_until) return `lease ends ${distance(record.lease_until)}`;
  return record.expires_at ? `expires ${distance(record.expires_at)}` : "–";
}

/** @param {StoredRecord} record @param {() => void} done */
export function actions(record, done) {
  if (!OPEN.includes(record.state)) return [];
  const about = `record ${short(record.id)}`;
  return [
    h("button", { type: "button", class: "small", "aria-label": `Executed: resolve ${about}`, onclick: () => resolve(record, "executed", done) }, "Executed…"),
    h("button", { type: "button", class: "small", "aria-label": `Not executed: resolve ${about}`, onclick: () => resolve(record, "not-executed", done) }, "Not executed…"),
  ];
}

/** @param {string} caption @param {() => void} done */
export function table(caption, done) {
  const body = h("tbody");
  const heads = ["Record", "State", "Attempt", "Changed", "Ends", "Size", "Resolve"];
  const element = h("div", { class: "table-frame" },
    h("table", { class: "records" },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      body));
  return {
    element,
    /** @param {StoredRecord[]} records */
    update(records) {
      keep(body, records, (record) => `${record.id} ${record.state} ${record.fence}`, (record) => row(record, done), refresh);
    },
  };
}

/** @param {StoredRecord} record @param {() => void} done */
function row(record, done) {
  const cell = (/** @type {string} */ label, /** @type {(Node | string | null)[]} */ ...children) =>
    h("td", { "data-label": label }, ...children);
  const changed = record.changed_at ?? record.created_at;
  const named = h("th", { scope: "row" }, h("a", { class: "id", href: `#/records/${record.id}`, title: record.id }, short(record.id)));
  if (record.unreadable) return h("tr", {}, named, cell("State", badge(record.state)), h("td", { "data-label": "Why", colspan: "5" }, record.unreadable));
  return h("tr", {}, named,
    cell("State", badge(record.state), record.erased ? h("span", { class: "tag" }, "erased") : null),
    cell("Attempt", `${record.attempt}`),
    cell("Changed", h("time", { datetime: changed, title: moment(changed), "data-part": "changed" }, distance(changed))),
    cell("Ends", h("span", { "data-part": "ends" }, ends(record))),
    cell("Size", bytes(record.bytes)),
    h("td", { class: "does" }, h("div", { class: "row" }, actions(record, done))));
}

/** Times move on; the rest of a row stays, and so does the focus in it. @param {Element} element @param {StoredRecord} record */
function refresh(element, record) {
  const [changed, end] = ["changed", "ends"].map((part) => element.querySelector(`[data-part=${part}]`));
  if (changed) say(changed, distance(record.changed_at ?? record.created_at));
  if (end) say(end, ends(record));
}
