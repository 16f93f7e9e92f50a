// What the process says of itself, asked once a second while somebody looks, and what its store says.

import { Problem, events, get } from "./api.js";

const EVERY = 1000;
/** Two minutes of samples: what a chart shows. */
export const SAMPLES_MAX = 120;
const EVENTS_MAX = 40;
const TELL_AFTER = 250;

/** Answers to claims, in the order in which they are shown. */
export const ANSWERS = ["granted", "replayed", "busy", "held", "mismatched", "recovering", "over-quota"];

/** How many samples a latency is taken over: one alone jumps. */
const WINDOW = 10;

/** Bounds in milliseconds (the last one has none), and how many answers came within each. @typedef {[number | null, number][]} Buckets */
/** @typedef {{at: number, rates: Record<string, number>, total: number, buckets: Buckets, p50: number | null, p99: number | null}} Sample */

/**
 * Within how many milliseconds a part of the answers between two counts came; `null` if there were none.
 * @param {Buckets} before @param {Buckets} now @param {number} part
 */
export function within(before, now, part) {
  const counts = now.map(([bound, count], index) => /** @type {[number | null, number]} */ ([bound, count - (before[index]?.[1] ?? 0)]));
  const wanted = (counts.at(-1)?.[1] ?? 0) * part;
  if (wanted <= 0) return null;
  let [from, under] = [0, 0];
  for (const [bound, count] of counts) {
    // Beyond the last bound there is only that it was longer.
    if (bound === null) return from;
    if (count >= wanted) return from + ((bound - from) * (wanted - under)) / Math.max(count - under, 1);
    [from, under] = [bound, count];
  }
  return null;
}

/** Tells listeners `change` once a second, and `event` when there are new events. */
class Live extends EventTarget {
  /** @type {any} What was last said. */
  overview = null;
  /** @type {Problem | null} Why nothing was said since. */
  trouble = null;
  /** @type {string | null} What the store fails with, while it does. */
  store = null;
  /** @type {Sample[]} */
  samples = [];
  /** @type {any[]} The newest first. */
  events = [];
  #heard = 0;
  #telling = false;
  /** @type {{at: number, answers: Record<string, number>, began: string, buckets: Buckets} | null} */
  #before = null;
  #stop = new AbortController();

  begin() {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.#repeat(signal, () => this.#ask());
    this.#repeat(signal, () => this.#askStore());
    void events((name, event) => this.#hear(name, event), signal);
  }

  end() {
    this.#stop.abort();
  }

  /** Asks again at once. */
  async again() {
    await Promise.all([this.#ask(), this.#askStore()]);
  }

  /** @param {AbortSignal} signal @param {() => Promise<void>} ask */
  async #repeat(signal, ask) {
    while (!signal.aborted) {
      if (!document.hidden) await ask();
      await new Promise((resume) => setTimeout(resume, EVERY));
    }
  }

  async #ask() {
    try {
      const overview = await get("/api/overview");
      this.#sample(overview);
      this.overview = overview;
      this.trouble = null;
    } catch (error) {
      this.trouble = error instanceof Problem ? error : new Problem(0, String(error));
    }
    this.dispatchEvent(new Event("change"));
  }

  async #askStore() {
    try {
      await get("/health/ready");
      this.store = null;
    } catch (error) {
      // A process that is not there says nothing of its store.
      this.store = error instanceof Problem && error.isStoreAway ? error.message : null;
    }
  }

  /** @param {any} overview */
  #sample(overview) {
    const [at, answers, began] = [performance.now(), overview.answers ?? {}, overview.started_at];
    const before = this.#before;
    this.#before = { at, answers, began, buckets: overview.store_buckets ?? [] };
    // A process that started anew counts from nothing.
    if (!before || before.began !== began) {
      this.samples = [];
      return;
    }
    const seconds = Math.max((at - before.at) / 1000, 0.001);
    /** @type {Record<string, number>} */
    const rates = {};
    for (const kind of ANSWERS) {
      rates[kind] = Math.max(0, (answers[kind] ?? 0) - (before.answers[kind] ?? 0)) / seconds;
    }
    const total = Object.values(rates).reduce((sum, rate) => sum + rate, 0);
    /** @type {Buckets} */
    const buckets = overview.store_buckets ?? [];
    const old = this.samples.at(-WINDOW)?.buckets ?? before.buckets;
    const [p50, p99] = [within(old, buckets, 0.5), within(old, buckets, 0.99)];
    this.samples = [...this.samples, { at, rates, total, buckets, p50, p99 }].slice(-SAMPLES_MAX);
  }

  /** @param {string} name @param {any} event */
  #hear(name, event) {
    if (name === "lost") return;
    this.#heard += 1;
    this.events = [{ ...event, event: event.event ?? name, n: this.#heard }, ...this.events].slice(0, EVENTS_MAX);
    // Thousands may come in a second, and nobody reads so fast.
    if (this.#telling) return;
    this.#telling = true;
    setTimeout(() => {
      this.#telling = false;
      this.dispatchEvent(new Event("event"));
    }, TELL_AFTER);
  }
}

export const live = new Live();
