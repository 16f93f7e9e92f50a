// The first page: what happens now, what waits for somebody, and how the store and its clean-up do.

import { get } from "./api.js";
import { bar, lines, stacked } from "./chart.js";
import { fill, h, keep, say } from "./dom.js";
import { bytes, clockTime, count, distance, duration, figure, moment, short } from "./format.js";
import { ANSWERS, live } from "./live.js";
import { nothingYet } from "./states.js";
import { table } from "./table.js";

/** What each answer means, for those who do not know the words. */
const MEANS = {
  granted: "the work was started",
  replayed: "a retry got the recorded answer",
  busy: "somebody else was running it",
  held: "the outcome is unknown, and the caller was told so",
  mismatched: "the key was used for another request",
  recovering: "a hook was asked what happened",
  "over-quota": "the caller uses as much as it may",
};
const STATES = ["in-flight", "completed", "released", "unknown"];
const SHOWN_MAX = 8;
/** Ticks between two listings: they ask the store. */
const LIST_EVERY = 2;

/** @param {{announce: (text: string) => void}} page */
export function overview(page) {
  const answers = answersOf();
  const latency = latencyOf();
  const store = storeOf();
  const feed = feedOf();
  const waiting = listOf("Unknown", "unknown", "Nobody can tell whether this work happened. Retries are held until somebody says.", "Nothing is unknown.");
  const running = listOf("In flight", "in-flight", "Work that somebody holds a grant for.", "Nothing is running.");
  const tiles = tilesOf(waiting.all);
  const empty = h("div");
  const about = h("p", { class: "muted about" });
  const element = h("div", { class: "page" },
    h("div", { class: "page-head" }, h("h1", {}, "Overview"), about),
    tiles.element, empty,
    h("div", { class: "columns" },
      h("div", { class: "column" }, answers.element, waiting.element, running.element),
      h("div", { class: "column" }, latency.element, store.element, feed.element)));
  let [ticks, unknown] = [0, /** @type {number | null} */ (null)];
  const update = () => {
    const told = live.overview;
    if (!told) return;
    say(about, [told.command, `version ${told.version}`, `up ${duration(Date.now() - Date.parse(told.started_at))}`, told.promise?.store].filter(Boolean).join(" · "));
    for (const part of [tiles, answers, latency, store, feed]) part.update();
    const stats = told.stats ?? {};
    const total = [...STATES.map((state) => stats[state.replace("-", "_")] ?? 0), ...Object.values(told.answers ?? {})];
    const none = Boolean(told.stats) && total.every((one) => one === 0);
    if (none !== (empty.childElementCount > 0)) fill(empty, none ? h("section", { class: "card" }, nothingYet()) : null);
    if (ticks % LIST_EVERY === 0) for (const list of [waiting, running]) void list.ask();
    ticks += 1;
    const open = waiting.all() ?? stats.unknown;
    if (unknown !== null && open > unknown) {
      page.announce(`${open} ${open === 1 ? "record has" : "records have"} an unknown outcome.`);
    }
    unknown = open ?? unknown;
  };
  return { title: "Overview", element, update, heard: feed.update };
}

/** @param {string} title @param {...(Node | string | null)} body */
function card(title, ...body) {
  return h("section", { class: "card", "aria-label": title }, h("h2", {}, title), ...body.filter((part) => part !== null));
}

/** @param {() => number | null} listed */
function tilesOf(listed) {
  const tile = (/** @type {string} */ label, /** @type {string} */ name, /** @type {string | null} */ href) => {
    const [value, note] = [h("span", { class: "value", "data-figure": name }, "–"), h("span", { class: "note" }, "\u00a0")];
    const inside = [h("span", { class: "label" }, label), value, note];
    const element = href ? h("a", { class: "tile", href }, inside) : h("div", { class: "tile" }, inside);
    return { element, value, note };
  };
  const rate = tile("Claims a second", "rate", null);
  const kept = tile("Duplicates suppressed", "suppressed", null);
  const running = tile("Running now", "running", "#/records?state=in-flight");
  const unknown = tile("Unknown outcomes", "unknown", "#/records?state=unknown");
  const slow = tile("Store, 99 of 100", "p99", null);
  const update = () => {
    const { answers = {}, stats, running: at = 0, waiters = 0, store_ms } = live.overview;
    const all = ANSWERS.reduce((sum, kind) => sum + (answers[kind] ?? 0), 0);
    const twice = all - (answers.granted ?? 0) - (answers["over-quota"] ?? 0);
    say(rate.value, figure(live.samples.at(-1)?.total ?? 0));
    say(rate.note, `${count(all)} since the start`);
    say(kept.value, count(twice));
    say(kept.note, all > 0 ? `${figure((100 * twice) / all)} % of all claims` : "no claims yet");
    say(running.value, count(at));
    say(running.note, waiters === 1 ? "1 duplicate waits" : `${count(waiters)} duplicates wait`);
    // The count may be seconds old; a list that is whole is not.
    const open = listed() ?? stats?.unknown;
    say(unknown.value, count(open));
    say(unknown.note, open > 0 ? "waiting for your verdict" : "none waits for you");
    unknown.element.setAttribute("data-tone", open > 0 ? "alert" : "calm");
    const last = live.samples.at(-1);
    const { p50, p99 } = typeof last?.p99 === "number" ? last : (store_ms ?? {});
    say(slow.value, typeof p99 === "number" ? `${figure(p99)} ms` : "–");
    say(slow.note, typeof p50 === "number" ? `half within ${figure(p50)} ms` : "nothing was asked yet");
  };
  return { element: h("div", { class: "tiles" }, [rate, unknown, running, kept, slow].map((one) => one.element)), update };
}

function answersOf() {
  const chart = stacked("Answers a second over the last two minutes; the figures are in the list below", ANSWERS);
  const legend = h("ul", { class: "legend" });
  const rows = ANSWERS.map((kind) => {
    const [now, all] = [h("span", { class: "now" }, "0"), h("span", { class: "all", "data-answer": kind }, "0")];
    const row = h("li", { title: MEANS[/** @type {keyof typeof MEANS} */ (kind)] }, h("i", { class: `swatch kind-${kind}` }), h("span", { class: "what" }, kind.replace("-", " ")), now, all);
    legend.append(row);
    return { kind, now, all, row };
  });
  const update = () => {
    chart.update(live.samples.map((sample) => sample.rates));
    const last = live.samples.at(-1);
    for (const { kind, now, all, row } of rows) {
      const total = live.overview.answers?.[kind] ?? 0;
      say(now, `${figure(last?.rates[kind] ?? 0)} /s`);
      say(all, count(total));
      row.classList.toggle("none", total === 0);
    }
  };
  return { element: card("Answers", chart.element, legend), update };
}

function latencyOf() {
  const chart = lines("How long the store took over the last two minutes", ["p50", "p99"], " ms");
  const legend = h("p", { class: "keys" }, h("i", { class: "swatch line-p50" }), "half within", h("i", { class: "swatch line-p99" }), "99 of 100 within");
  return { element: card("Store latency", chart.element, legend), update: () => chart.update(live.samples) };
}

function storeOf() {
  const shares = h("div", { class: "shares", "aria-hidden": "true" });
  const facts = h("dl", { class: "facts" });
  const update = () => {
    const { stats, sweep = {}, promise = {}, endings = {} } = live.overview;
    const values = STATES.map((name) => ({ name, value: stats?.[name.replace("-", "_")] ?? 0 }));
    bar(values.map(({ name, value }) => ({ name, value, text: `${count(value)} ${name}` })), shares);
    /** @type {[string, string][]} */
    const rows = [
      ...values.map(({ name, value }) => /** @type {[string, string]} */ ([name.replace("-", " "), stats ? count(value) : "–"])),
      ["Size", bytes(stats?.bytes)],
      ["Survives", (promise.survives ?? []).join(", ") || "nothing: it ends with this process"],
      ["Last sweep", sweep.last_success_at ? distance(sweep.last_success_at) : "none yet"],
      ["Swept", `${count(sweep.removed_total ?? 0)}${sweep.rows_per_second ? `, ${figure(sweep.rows_per_second)} /s` : ""}`],
      ["Oldest expired", sweep.oldest_expired_ms ? `waits ${duration(sweep.oldest_expired_ms)}` : "none waits"],
      ["Sweeps failed", count(sweep.failures ?? 0)],
      ["Sweeps here", sweep.elected === false ? "another process does" : "this process does"],
      ["Abandoned", count(endings.abandoned ?? 0)],
    ];
    keep(facts, rows, ([name]) => name, ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)),
      (element, [, value]) => say(/** @type {Element} */ (element.lastElementChild), value));
  };
  return { element: card("Store and sweep", shares, facts), update };
}

function feedOf() {
  const list = h("ol", { class: "feed" });
  const none = h("p", { class: "muted" }, "Nothing has happened since this page was opened.");
  const update = () => {
    const shown = live.events.slice(0, 12);
    none.hidden = shown.length > 0;
    keep(list, shown, (event) => String(event.n), (event) =>
      h("li", {}, h("time", { datetime: event.at, title: moment(event.at) }, clockTime(event.at)),
        h("span", { class: `event event-${String(event.event).replace(/[^a-z-]/g, "")}` }, event.event),
        event.id ? h("a", { class: "id", href: `#/records/${event.id}` }, short(event.id)) : null));
  };
  return { element: card("Events", none, list), update };
}

/** @param {string} title @param {string} state @param {string} about @param {string} none */
function listOf(title, state, about, none) {
  const trouble = h("p", { class: "muted" }, "…");
  const rows = table(title, () => void ask());
  const more = h("a", { class: "more", href: `#/records?state=${state}` }, "All of them");
  const text = h("p", { class: "muted" }, about);
  let [asking, all] = [false, /** @type {number | null} */ (null)];
  const ask = async () => {
    if (asking) return;
    asking = true;
    try {
      const { records, next } = await get(`/api/records?state=${state}&limit=${SHOWN_MAX}`);
      all = next ? null : records.length;
      rows.update(records);
      say(trouble, none);
      for (const part of [rows.element, text]) part.hidden = records.length === 0;
      trouble.hidden = records.length > 0;
      more.hidden = !next;
    } catch {
      // The banner says why. What was listed may no longer be so.
      all = null;
      trouble.hidden = false;
      say(trouble, "This cannot be listed now.");
      for (const part of [rows.element, text, more]) part.hidden = true;
    } finally {
      asking = false;
    }
  };
  for (const part of [rows.element, text, more]) part.hidden = true;
  return { element: card(title, text, trouble, rows.element, more), ask, all: () => all };
}
