// One record: what is known of it, what happened to it, and what can be done about it.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { bytes, distance, moment, short } from "./format.js";
import { erase } from "./resolve.js";
import { absent, badge, failed } from "./states.js";
import { actions } from "./table.js";

/** What each event means. What is not here is shown by its name. */
const MEANS = new Map(Object.entries({
  created: "The record was made",
  claimed: "Claimed: somebody asked to run it",
  granted: "Granted: the work was started",
  renewed: "Renewed: the work goes on",
  completed: "Completed: the answer was recorded",
  replayed: "Replayed: a retry got the recorded answer",
  released: "Released: the work did not happen, and the key is free",
  abandoned: "Abandoned: the work broke off without an answer",
  unknown: "Unknown: nobody can tell whether the work happened",
  busy: "Busy: a retry came while the work was running",
  held: "Held: a retry was told that the outcome is unknown",
  mismatched: "Mismatch: the key was used for another request",
  recovering: "Recovering: a hook was asked what happened",
  fenced: "Fenced: an earlier attempt came too late, and changed nothing",
  late: "Late: an outcome came after the record was resolved",
  resolved: "Resolved: somebody said that it happened",
  sealed: "Sealed: nobody could say, and the record was closed",
  erased: "Erased: what was kept is gone",
  "lease-lost": "The lease was lost while the work ran",
  "lease-ends": "The lease ends",
  expires: "The record expires",
  "store-failed": "The store failed",
  unrecorded: "The caller got an answer that was not recorded",
}));

/** What is kept of an answer. */
const KEPT = new Map(Object.entries({
  kept: "",
  "too-large": "not kept: it was too large",
  discarded: "not kept",
  erased: "erased",
  indeterminate: "nobody knows what it was",
}));

/** @param {{id: string, announce: (text: string) => void}} page */
export function record(page) {
  const element = h("div", { class: "page" }, h("div", { class: "page-head" }, h("h1", {}, "Record ", h("code", {}, short(page.id)))));
  const place = h("div", { class: "stack" });
  element.append(place);
  if (!/^[0-9a-f]{64}$/.test(page.id)) {
    fill(place, h("section", { class: "card" }, absent()));
    return { title: "Record", element, update: () => undefined };
  }
  let [asking, ticks] = [false, 0];
  const path = `/api/records/${page.id}`;
  const parts = partsOf(path, () => void changed());
  const ask = async () => {
    if (asking) return;
    asking = true;
    try {
      parts.update(await get(path));
      if (!parts.element.isConnected) fill(place, parts.element);
    } catch (error) {
      fill(place, h("section", { class: "card" }, failed(error, () => void ask())));
    } finally {
      asking = false;
    }
  };
  const changed = async () => {
    await ask();
    page.announce("The record was changed.");
  };
  void ask();
  const update = () => {
    ticks += 1;
    if (ticks % 2 === 0) void ask();
  };
  return { title: `Record ${short(page.id)}`, element, update };
}

/**
 * The parts of the page. One that did not change is left as it is: somebody may be in the middle of it.
 * @param {string} path @param {() => void} done
 */
function partsOf(path, done) {
  /** @param {(told: any) => unknown} of @param {(told: any) => Node | null} make */
  const part = (of, make) => {
    const [place, shown] = [h("div", { class: "part" }), { text: "" }];
    const update = (/** @type {any} */ told) => {
      const text = JSON.stringify(of(told) ?? null);
      if (text !== shown.text) fill(place, make(told));
      shown.text = text;
    };
    return { place, update };
  };
  const question = part((told) => [told.state, told.fence, told.run_until], (told) => questionOf(told, done));
  const line = part((told) => told.timeline, (told) => timeline(told.timeline ?? []));
  const answer = part((told) => [told.outcome, told.by, told.unreadable], (told) => outcome(told, path));
  const known = part((told) => ({ ...told, timeline: null, steps: null, outcome: null }), facts);
  const stepped = part((told) => told.steps, (told) => steps(told.steps ?? []));
  const privacy = part((told) => [told.state, told.erased], (told) => removal(told, done));
  const element = h("div", { class: "stack wide" }, question.place,
    h("div", { class: "columns" },
      h("div", { class: "column" }, line.place, answer.place),
      h("div", { class: "column" }, known.place, stepped.place, privacy.place)));
  const all = [question, line, answer, known, stepped, privacy];
  return { element, update: (/** @type {any} */ told) => all.forEach((one) => one.update(told)) };
}

/** @param {any} told @param {() => void} done */
function questionOf(told, done) {
  const doable = actions(told, done);
  if (doable.length === 0) return null;
  return h("section", { class: "card attention", "aria-label": "Resolve" },
    h("div", {}, h("h2", {}, "Did it happen?"),
      h("p", {}, "Nobody can tell whether this work was done. Retries are refused until you say. Look in the system that does the work first.")),
    h("div", { class: "row" }, doable));
}

/** @param {any} told */
function facts(told) {
  /** @type {[string, Node | string][]} */
  const rows = told.unreadable ? [
    ["State", badge(told.state)],
    ["Id", h("code", { class: "whole" }, told.id)],
    ["Scope", h("code", { class: "whole" }, told.scope ?? "–")],
    ["Why", told.unreadable],
  ] : [
    ["State", badge(told.state)],
    ["Id", h("code", { class: "whole" }, told.id)],
    ["Scope", h("code", { class: "whole" }, told.scope ?? "–")],
    ["Fence", String(told.fence)],
    ["Attempt", String(told.attempt)],
    ["Created", time(told.created_at)],
    ["Changed", time(told.changed_at)],
    ["Lease until", time(told.lease_until)],
    ["May run until", time(told.run_until)],
    ["Expires", time(told.expires_at)],
    ["Size", `${bytes(told.bytes)}${told.erased ? ", erased" : ""}`],
  ];
  const known = rows.filter(([, value]) => value !== "");
  return h("section", { class: "card", "aria-label": "Facts" }, h("h2", {}, "Facts"),
    h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}

/** @param {string | null | undefined} at */
function time(at) {
  if (!at) return "";
  return h("time", { datetime: at, title: distance(at) }, moment(at));
}

/** @param {{at: string, event: string, fence: number, attempt?: number}[]} entries */
function timeline(entries) {
  const rows = entries.map((entry) => {
    const what = MEANS.get(entry.event) ?? entry.event;
    const more = [entry.fence ? `fence ${entry.fence}` : "", entry.attempt ? `attempt ${entry.attempt}` : ""].filter(Boolean).join(" · ");
    const ahead = Date.parse(entry.at) > Date.now();
    return h("li", { class: `event-${String(entry.event).replace(/[^a-z-]/g, "")}`, "data-ahead": ahead ? "yes" : null },
      h("span", { class: "what" }, what), h("span", { class: "muted" }, time(entry.at), more ? ` · ${more}` : ""));
  });
  return h("section", { class: "card", "aria-label": "Timeline" }, h("h2", {}, "Timeline"),
    rows.length > 0 ? h("ol", { class: "timeline" }, rows) : h("p", { class: "muted" }, "This process saw nothing of it."));
}

/** @param {any} told @param {string} path */
function outcome(told, path) {
  const kept = told.outcome;
  if (told.unreadable) {
    return h("section", { class: "card attention", "aria-label": "Answer" }, h("h2", {}, "Answer"),
      h("p", {}, `It is there and cannot be read: ${told.unreadable}. Retries are refused, and the work does not run again. It can still be erased.`));
  }
  if (!kept) {
    return h("section", { class: "card", "aria-label": "Answer" }, h("h2", {}, "Answer"), h("p", { class: "muted" }, "None is recorded."));
  }
  const place = h("div", { class: "stack" });
  const button = h("button", { type: "button" }, "Show headers and body");
  button.addEventListener("click", async () => {
    try {
      const { outcome: whole } = await get(`${path}?body=true`);
      fill(place, body(whole));
    } catch (error) {
      fill(place, failed(error, () => button.click()));
    }
  });
  place.append(h("div", { class: "row" }, button), h("p", { class: "muted" }, "It may hold what is private: that you look is written into the audit log."));
  return h("section", { class: "card", "aria-label": "Answer" }, h("h2", {}, "Answer"),
    h("p", { class: "answer-line" }, kept.status ? h("strong", {}, String(kept.status)) : null, h("span", {}, KEPT.get(kept.kind) ?? kept.kind),
      h("span", { class: "muted" }, [kept.content_type, bytes(kept.bytes)].filter(Boolean).join(" · "))),
    told.by === "resolve" && h("p", { class: "muted" }, "Somebody said that this is the answer; nobody saw the work give it."),
    place);
}

/** Headers come as pairs or as an object. @param {any} headers @returns {[string, string][]} */
function pairs(headers) {
  if (!headers) return [];
  const all = Array.isArray(headers) ? headers.map((one) => (Array.isArray(one) ? one : [one.name, one.value])) : Object.entries(headers);
  return all.map(([name, value]) => [String(name), Array.isArray(value) ? value.join(", ") : String(value)]);
}

/** @param {any} kept */
function body(kept) {
  const { text, base64 } = kept?.body ?? {};
  const lines = pairs(kept?.headers);
  const headers = lines.length > 0 && h("dl", { class: "headers" }, lines.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  if (text === "" || (text === undefined && base64 === undefined)) return [headers, h("p", { class: "muted", "data-body": true }, "The body is empty.")];
  const note = text === undefined ? h("p", { class: "muted" }, "Not text: shown as base64.") : null;
  return [headers, note, h("pre", { class: "body", tabindex: "0", "data-body": true }, h("code", {}, text ?? base64))];
}

/** @param {{name: string, bytes: number}[]} all */
function steps(all) {
  if (all.length === 0) return null;
  return h("section", { class: "card", "aria-label": "Steps" }, h("h2", {}, "Steps"),
    h("dl", { class: "facts" }, all.map((step) => h("div", {}, h("dt", {}, step.name), h("dd", {}, bytes(step.bytes))))));
}

/** @param {any} told @param {() => void} done */
function removal(told, done) {
  if (told.state === "in-flight" || told.erased) return null;
  return h("section", { class: "card", "aria-label": "Privacy" }, h("h2", {}, "Privacy"),
    h("p", { class: "muted" }, "For a request to be forgotten: removes what is kept and leaves the mark that the work was done."),
    h("button", { type: "button", onclick: () => erase(told, done) }, "Erase…"));
}
