// Asks the admin API of the process that served this page, and nobody else.

const TOKEN = "onlyonce.token";
/** Longer than the process gives its store to answer. */
const ANSWER_WITHIN = 15_000;

/** @typedef {{id: string, state: string, fence: number, attempt: number, scope: string, created_at: string,
 *   changed_at?: string, lease_until?: string, run_until?: string, expires_at?: string, bytes: number, erased: boolean, unreadable?: string}} StoredRecord */

/** An answer that is no success, or none at all (`status` 0). */
export class Problem extends Error {
  /** @param {number} status @param {string} detail @param {any} [told] */
  constructor(status, detail, told) {
    super(detail);
    this.status = status;
    this.title = String(told?.title ?? "");
    /** What stands in the way, by its name. */
    this.answer = String(told?.answer ?? "");
  }

  /** Nobody is there. */
  get isUnreachable() {
    return this.status === 0;
  }

  /** A token is asked for. */
  get isDenied() {
    return this.status === 401;
  }

  /** The store, or what stands before it, cannot answer now. */
  get isStoreAway() {
    return this.status === 503 || this.status === 504;
  }
}

/** The token lives as long as the tab: never in a cookie, never in an address. */
export const token = {
  /** @type {string | null} */
  held: null,
  get() {
    try {
      return this.held ?? sessionStorage.getItem(TOKEN);
    } catch {
      return this.held;
    }
  },
  /** @param {string | null} value */
  set(value) {
    this.held = value;
    try {
      if (value === null) sessionStorage.removeItem(TOKEN);
      else sessionStorage.setItem(TOKEN, value);
    } catch {
      // It is kept in memory then.
    }
  },
};

/** Whose records are meant, where a process has several namespaces. */
export const place = {
  /** @type {string | null} */
  chosen: null,
};

/** @param {Record<string, string>} [more] @returns {Record<string, string>} */
function fields(more = {}) {
  const shown = token.get();
  return shown ? { ...more, Authorization: `Bearer ${shown}` } : more;
}

/** @param {string} path @param {RequestInit} request @returns {Promise<any>} */
async function ask(path, request) {
  let response;
  let text;
  try {
    response = await fetch(path, {
      ...request,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(ANSWER_WITHIN),
    });
    text = await response.text();
  } catch (error) {
    const slow = error instanceof DOMException && error.name === "TimeoutError";
    throw new Problem(0, slow ? "It took too long to answer." : "Nobody answers at this address.");
  }
  const value = read(text);
  if (response.ok) return value;
  throw new Problem(response.status, value?.detail ?? text.slice(0, 300), value);
}

/** @param {string} text @returns {any} */
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string} path */
export function get(path) {
  const isPlaced = place.chosen !== null && path.startsWith("/api/records");
  const asked = isPlaced ? `${path}${path.includes("?") ? "&" : "?"}namespace=${encodeURIComponent(place.chosen ?? "")}` : path;
  return ask(asked, { headers: fields() });
}

/** @param {string} path @param {Record<string, unknown>} body */
export function post(path, body) {
  const headers = fields({ "Content-Type": "application/json" });
  const placed = place.chosen === null ? body : { namespace: place.chosen, ...body };
  return ask(path, { method: "POST", headers, body: JSON.stringify(placed) });
}

/**
 * Server-sent events, read with `fetch`: an `EventSource` cannot show a token.
 * @param {(name: string, event: any) => void} heard
 * @param {AbortSignal} signal
 */
export async function events(heard, signal) {
  let last = "";
  while (!signal.aborted) {
    try {
      const headers = fields(last ? { "Last-Event-ID": last } : {});
      const response = await fetch("/api/events", { headers, signal, cache: "no-store", credentials: "omit" });
      if (!response.ok || !response.body) throw new Problem(response.status, "no events");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const whole = (text + value).replaceAll("\r\n", "\n").split("\n\n");
        text = whole.pop() ?? "";
        for (const block of whole) last = one(block, heard) ?? last;
      }
    } catch {
      // It ended, or never began: the figures say why.
    }
    if (!signal.aborted) await new Promise((resume) => setTimeout(resume, 2000));
  }
}

/** @param {string} block @param {(name: string, event: any) => void} heard */
function one(block, heard) {
  let [name, id, told] = ["message", /** @type {string | null} */ (null), ""];
  for (const line of block.split("\n")) {
    const [field, ...rest] = line.split(":");
    const value = rest.join(":").replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "id") id = value;
    else if (field === "data") told += value;
  }
  const event = read(told);
  if (event) heard(name, event);
  return id;
}
