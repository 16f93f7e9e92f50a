// All records, by state, scope, age and the beginning of their id, a page at a time.

import { get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { live } from "./live.js";
import { input } from "./resolve.js";
import { failed, notice, nothingYet } from "./states.js";
import { table } from "./table.js";

const STATES = ["unknown", "in-flight", "completed", "released", "sealed"];
const PAGE = 50;

/** @param {{query: URLSearchParams, announce: (text: string) => void}} page */
export function records(page) {
  const { query } = page;
  const place = h("div", { class: "list-place", "aria-live": "off" });
  const chosen = query.getAll("state");
  const chip = (/** @type {string} */ label, /** @type {string | null} */ state) => {
    const on = state === null ? chosen.length === 0 : chosen.includes(state);
    return h("a", { class: "chip", href: state ? `#/records?state=${state}` : "#/records", "aria-current": on ? "true" : null }, label);
  };
  const prefix = input("prefix", "Id begins with", { value: query.get("prefix") ?? "", pattern: "[0-9a-fA-F]{0,64}", placeholder: "1f8a…" });
  const scope = input("scope", "Scope", { value: query.get("scope") ?? "", pattern: "[0-9a-fA-F]{16}", title: "16 hexadecimal digits, as a record's page shows them" });
  const older = input("older_than", "Older than", { value: query.get("older_than") ?? "", placeholder: "1h", pattern: "[0-9]+(ms|s|m|h|d|w)" });
  const form = h("form", { class: "filter" }, prefix.element, scope.element, older.element, h("button", { type: "submit" }, "Filter"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams(chosen.map((state) => ["state", state]));
    for (const { field } of [prefix, scope, older]) if (field.value.trim()) wanted.set(field.name, field.value.trim());
    location.hash = `#/records?${wanted}`;
  });
  const element = h("div", { class: "page" },
    h("div", { class: "page-head" }, h("h1", {}, "Records"), h("nav", { class: "chips", "aria-label": "States" }, chip("All", null), STATES.map((state) => chip(state.replace("-", " "), state)))),
    h("section", { class: "card" }, form, place));
  const list = listOf(place, query, page.announce);
  void list.begin();
  return { title: "Records", element, update: () => undefined };
}

/** @param {Element} place @param {URLSearchParams} query @param {(text: string) => void} announce */
function listOf(place, query, announce) {
  /** @type {import("./api.js").StoredRecord[]} */
  let all = [];
  const rows = table("Records", () => void begin());
  const more = h("button", { type: "button" }, "Show more");
  const tally = h("p", { class: "muted", role: "status" });
  /** @type {string | null} */
  let next = null;
  const ask = async () => {
    const asked = new URLSearchParams(query);
    asked.set("limit", String(PAGE));
    if (next) asked.set("after", next);
    try {
      const answer = await get(`/api/records?${asked}`);
      all = [...all, ...answer.records];
      next = answer.next;
      rows.update(all);
      more.hidden = !next;
      say(tally, `${all.length} ${all.length === 1 ? "record" : "records"}${next ? ", and more" : ""}`);
      if (all.length === 0) fill(place, nothing(query));
      else if (!rows.element.isConnected) fill(place, rows.element, h("div", { class: "row between" }, tally, more));
    } catch (error) {
      fill(place, failed(error, () => void begin()));
      announce("The records cannot be listed.");
    }
  };
  const begin = async () => {
    [all, next] = [[], null];
    await ask();
  };
  more.addEventListener("click", () => void ask());
  return { begin };
}

/** @param {URLSearchParams} query */
function nothing(query) {
  if ([...query.keys()].length === 0) return nothingYet();
  const total = live.overview?.stats;
  const clear = h("a", { class: "button", href: "#/records" }, "Show all records");
  if (query.getAll("state").join() === "unknown" && [...query.keys()].length === 1) {
    return notice("Nothing is unknown", h("p", {}, "Of every piece of work it is known whether it happened."), total ? clear : null);
  }
  return notice("Nothing matches", h("p", {}, "No record is like that now."), clear);
}
