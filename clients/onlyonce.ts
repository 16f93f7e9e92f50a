/**
 * Operations that happen only once, over the claims API of `onlyonce serve`. One file, no dependencies: copy it.
 *
 *     const claims = new Claims("http://127.0.0.1:9191", { token: process.env.ONLYONCE_TOKEN });
 *
 *     const charge = claims.idempotent(
 *       { key: (order: Order) => `charge-${order.id}`, payload: (order: Order) => order },
 *       async (order: Order) => { ... },  // runs once; every later call with the same order gets what it returned
 *     );
 *
 * `request` is the caller's side of the `Idempotency-Key` header: it sends again, with the same key, until there is an
 * answer that will not change. Types only, nothing that needs a compiler: Node 22.18 and later run this file as it is.
 *
 * What an exception means. One that leaves the work says nothing about its effect, so the operation becomes *unknown*
 * and what happens next is the `unknown` policy's business. Throw `NotExecuted` when nothing happened: the key is free
 * again.
 */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

const BACKOFF_FIRST_MS = 200;
const BACKOFF_LONGEST_MS = 20_000;

// Errors.

/** The work was not run for this call. */
export class Conflict extends Error {}

/** Someone else runs it. */
export class InFlight extends Conflict {
  readonly leftMs: number;
  constructor(leftMs: number) {
    super("the operation is running");
    this.leftMs = leftMs;
  }
}

/** Nobody knows whether it happened. `record` and `fence` are what it is resolved with. */
export class OutcomeUnknown extends Conflict {
  readonly record: string;
  readonly fence: number;
  constructor(record: string, fence: number) {
    super(`it is unknown whether the operation happened (record ${record.slice(2, 10)}, fence ${fence})`);
    this.record = record;
    this.fence = fence;
  }
}

/** The key was used for another request. */
export class KeyReused extends Conflict {}

/** The grant was lost while the work ran: another attempt holds the truth. */
export class Fenced extends Conflict {}

/** It was done before, but its answer was not kept. */
export class AnswerNotKept extends Conflict {}

/** An earlier attempt began the step and did not finish it: nobody knows whether its effect happened. */
export class StepUnknown extends Error {}

/** Throw this from the work: nothing happened. With `corrected`, another request may use the key. */
export class NotExecuted extends Error {
  corrected: boolean;
  constructor(message = "nothing happened", options: { corrected?: boolean } = {}) {
    super(message);
    this.corrected = options.corrected ?? false;
  }
}

/** There was no answer in time. What was asked may have been done; asking again is safe. */
export class Unreachable extends Error {}

/** The service refused. */
export class Problem extends Error {
  readonly status: number;
  readonly document: { [name: string]: Json };
  constructor(status: number, document: { [name: string]: Json }) {
    super(`${status} ${document.title ?? ""}: ${document.detail ?? ""}`);
    this.status = status;
    this.document = document;
  }
}

// Requests that are sent again.

/** An answer, read to its end. */
export type Answer = { status: number; headers: Headers; body: Uint8Array };

export type RequestOptions = {
  method?: string;
  headers?: { [name: string]: string };
  body?: string | Uint8Array;
  /** The same when the *operation* is tried again, also after a crash. Random without one: it protects this call only. */
  key?: string;
  withinMs?: number;
  attemptsMax?: number;
  attemptWithinMs?: number;
};

const sleep = (ms: number): Promise<void> => new Promise((wake) => setTimeout(wake, ms));

/** One attempt. Any status is an answer; no answer is `Unreachable`. */
async function send(url: string, asked: RequestInit, withinMs: number): Promise<Answer> {
  try {
    const signal = AbortSignal.timeout(Math.max(1, Math.ceil(withinMs)));
    const answer = await fetch(url, { ...asked, redirect: "manual", signal });
    return { status: answer.status, headers: answer.headers, body: new Uint8Array(await answer.arrayBuffer()) };
  } catch (error) {
    throw new Unreachable(String((error as Error).cause ?? error), { cause: error });
  }
}

function document(answer: Answer): { [name: string]: Json } {
  try {
    const read: unknown = JSON.parse(new TextDecoder().decode(answer.body));
    return typeof read === "object" && read !== null && !Array.isArray(read) ? (read as { [name: string]: Json }) : {};
  } catch {
    return {};
  }
}

/** Whether asking again would get the same. */
function isFinal(answer: Answer): boolean {
  const marks = ["idempotency-replayed", "idempotent-replayed"];
  if (marks.some((mark) => answer.headers.get(mark) === "true")) return true;
  if (answer.status === 409) return String(document(answer).type ?? "").endsWith("outcome-unknown");
  return ![408, 425, 429].includes(answer.status) && (answer.status < 500 || [501, 505].includes(answer.status));
}

function retryAfterMs(headers: Headers): number {
  const text = headers.get("retry-after")?.trim() ?? "";
  if (/^[0-9]+$/.test(text)) return Number(text) * 1000;
  const at = Date.parse(text);
  return Number.isNaN(at) ? 0 : Math.max(0, at - Date.now());
}

/** Sends until an answer is final, with exponential backoff and full jitter. Then the last answer, or no answer. */
async function untilFinal(
  attempt: (withinMs: number) => Promise<Answer>,
  final: (answer: Answer) => boolean,
  limits: { withinMs: number; attemptsMax: number; attemptWithinMs: number },
): Promise<Answer> {
  const deadline = performance.now() + limits.withinMs;
  for (let number = 0; ; number++) {
    let wait = Math.random() * Math.min(BACKOFF_LONGEST_MS, BACKOFF_FIRST_MS * 2 ** Math.min(number, 30));
    let last: Answer | Unreachable;
    try {
      last = await attempt(Math.min(deadline - performance.now(), limits.attemptWithinMs));
      if (final(last)) return last;
      wait += retryAfterMs(last.headers);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      last = error;
    }
    if (number + 1 >= limits.attemptsMax || performance.now() + wait >= deadline) {
      if (last instanceof Unreachable) throw last;
      return last;
    }
    await sleep(wait);
  }
}

/**
 * Sends a request with one `Idempotency-Key`, again and again, until there is an answer that will not change. Stops at
 * 422 and other refusals, and at any answer from the record, errors too. 409 waits while the first one runs.
 */
export function request(url: string, options: RequestOptions = {}): Promise<Answer> {
  const headers = { "Idempotency-Key": options.key ?? crypto.randomUUID(), ...options.headers };
  const asked = { method: options.method ?? "POST", headers, body: options.body as BodyInit | undefined };
  return untilFinal((withinMs) => send(url, asked, withinMs), isFinal, {
    withinMs: options.withinMs ?? 120_000,
    attemptsMax: options.attemptsMax ?? 10,
    attemptWithinMs: options.attemptWithinMs ?? 30_000,
  });
}

// The claims API.

type Outcome = { json?: Json; content_type?: string; base64?: string; tombstone?: string; content_version?: number };
type Reply = {
  answer: string;
  id: string;
  fence: number;
  attempt: number;
  left_ms: number;
  outcome: Outcome;
  value?: Outcome;
  steps?: { name: string; value: Outcome | null }[];
};

/** What goes to the service as it is. Durations are texts: `"30s"`, `"24h"`. */
export type Terms = {
  principal?: string;
  path?: string;
  retention?: string;
  run_max?: string;
  unknown?: "hold" | "seal" | "query" | "rerun";
  unknown_retention?: string;
  attempts_max?: number;
  hold_for?: string;
};

export type RunOptions = Terms & {
  key: string;
  /** What is asked: the same key with another one throws `KeyReused`. */
  payload?: Json;
  leaseMs?: number;
  /** How long to wait while someone else runs it; at most 60 000. */
  waitMs?: number;
};

/** The grant, in the hands of the work. */
export class Execution {
  readonly record: string;
  readonly fence: number;
  readonly attempt: number;
  readonly #claims: Claims;
  readonly #owner: string;
  readonly #leaseMs: number;
  readonly #steps: Map<string, Outcome | null>;
  readonly #lost = new AbortController();
  #goodUntil: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(claims: Claims, owner: string, reply: Reply, leaseMs: number, claimedAt: number) {
    this.record = reply.id;
    this.fence = reply.fence;
    this.attempt = reply.attempt;
    this.#claims = claims;
    this.#owner = owner;
    this.#leaseMs = leaseMs;
    this.#goodUntil = claimedAt + leaseMs;
    this.#steps = new Map((reply.steps ?? []).map((step) => [step.name, step.value]));
  }

  /** Aborted when the grant is lost: the work must stop. Pass it to `fetch`. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * A part of the work that happens once: later attempts get its result without running it. One that an earlier attempt
   * began and did not finish throws `StepUnknown`, unless it is `repeatable`.
   */
  async step<T extends Json | Uint8Array | void>(
    name: string,
    work: () => Promise<T> | T,
    options: { repeatable?: boolean } = {},
  ): Promise<T> {
    const known = this.#steps.get(name);
    if (known !== undefined) return valueOf(known) as T;
    let number = 1;
    while (this.#steps.has(`~begun ${number} ${name}`) && this.#steps.has(`~undone ${number} ${name}`)) number++;
    if (!this.#steps.has(`~begun ${number} ${name}`)) {
      // On record before the work starts, so that a step that was cut short can be told from one never begun.
      await this.#recordStep(`~begun ${number} ${name}`, { json: this.fence });
    } else if (!options.repeatable) {
      throw new StepUnknown(name);
    }
    try {
      const result = await work();
      return valueOf(await this.#recordStep(name, outcomeOf(result))) as T;
    } catch (error) {
      if (error instanceof NotExecuted) {
        await this.#recordStep(`~undone ${number} ${name}`, { json: this.fence });
        // A refusal would forget the request, and with it the steps that did happen.
        error.corrected &&= !this.#anyFinished();
      }
      throw error;
    }
  }

  /** A value that differs each time it is made (a time, a random number): made once, then always the same. */
  async memo<T extends Json | Uint8Array>(name: string, make: () => T): Promise<T> {
    const known = this.#steps.get(name);
    return valueOf(known !== undefined ? known : await this.#recordStep(name, outcomeOf(make()))) as T;
  }

  #anyFinished(): boolean {
    const begun = [...this.#steps.keys()].filter((name) => name.startsWith("~begun "));
    return begun.some((name) => this.#steps.has(name.split(" ").slice(2).join(" ")));
  }

  async #recordStep(name: string, value: Outcome): Promise<Outcome> {
    const reply = await this.#command(`steps/${encodeURIComponent(name)}`, { value });
    if (reply.answer !== "recorded" && reply.answer !== "already") {
      this.#lost.abort();
      throw new Fenced(`the step could not be recorded: ${reply.answer}`);
    }
    const kept = reply.value ?? value;
    this.#steps.set(name, kept);
    return kept;
  }

  #command(what: string, more: object, withinMs?: number): Promise<Reply> {
    const asked = { owner: this.#owner, fence: this.fence, ...more };
    return this.#claims.post(`/v1/claims/${this.record}/${what}`, asked, withinMs);
  }

  /** Begins to keep the lease. `false` when the grant was heard of too late: nothing may be started. */
  async begin(): Promise<boolean> {
    const late = performance.now() >= this.#goodUntil - this.#leaseMs / 2;
    if (late && !(await this.#renew())) return false;
    this.#keep();
    return true;
  }

  /** Ends the grant. A service that is away for too long leaves it to the lease: the record becomes unknown. */
  async end(how: "complete" | "release" | "abandon", more: object): Promise<string | undefined> {
    try {
      return (await this.#command(how, more)).answer;
    } catch (error) {
      if (!(error instanceof Unreachable || error instanceof Problem)) throw error;
      console.error(`onlyonce: the end of ${this.record.slice(2, 10)} is not on record (${how}): ${error.message}`);
      return undefined;
    } finally {
      this.#ended = true;
      clearTimeout(this.#timer);
    }
  }

  #keep(): void {
    this.#timer = setTimeout(async () => {
      const held = await this.#renew();
      if (this.#ended) return;
      if (held) this.#keep();
      else this.#lost.abort();
    }, this.#leaseMs / 3);
    // The work keeps the process alive, not its heartbeat.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** Whether the grant is still held, as far as anyone can tell. */
  async #renew(): Promise<boolean> {
    const askedAt = performance.now();
    try {
      const reply = await this.#command("renew", { lease: `${this.#leaseMs}ms` }, this.#leaseMs / 3);
      if (reply.answer === "fenced") return false;
      // Counted from before it was sent: the service counts from when it arrives.
      this.#goodUntil = askedAt + reply.left_ms;
    } catch (error) {
      if (!(error instanceof Unreachable || error instanceof Problem)) throw error;
    }
    return performance.now() < this.#goodUntil;
  }
}

/** A client of `onlyonce serve`. */
export class Claims {
  readonly #url: string;
  readonly #headers: { [name: string]: string };
  readonly #withinMs: number;

  constructor(url: string, options: { token?: string; withinMs?: number } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#withinMs = options.withinMs ?? 30_000;
    this.#headers = { "Content-Type": "application/json" };
    if (options.token !== undefined) this.#headers["Authorization"] = `Bearer ${options.token}`;
  }

  /** A command. It is sent again while there is no answer: every command may be repeated as it is. */
  async post(path: string, asked: object, withinMs: number = this.#withinMs): Promise<Reply> {
    const sent = { method: "POST", headers: this.#headers, body: JSON.stringify(asked) };
    const answer = await untilFinal(
      (left) => send(this.#url + path, sent, left),
      (answer) => ![429, 502, 503, 504].includes(answer.status),
      { withinMs, attemptsMax: 1000, attemptWithinMs: withinMs },
    );
    if (answer.status !== 200) throw new Problem(answer.status, document(answer));
    return document(answer) as unknown as Reply;
  }

  /** Runs `work` once for `key`, and gives what it returned now and on every later call. */
  async run<T extends Json | Uint8Array | void>(
    options: RunOptions,
    work: (execution: Execution) => Promise<T> | T,
  ): Promise<T> {
    const { leaseMs = 30_000, waitMs = 0, ...terms } = options;
    // Made before the claim is sent, so that a lost reply is asked for again and nothing is granted to nobody.
    const owner = crypto.randomUUID();
    const asked = { owner, lease: `${leaseMs}ms`, ...(waitMs > 0 ? { wait: `${waitMs}ms` } : {}), ...terms };
    const claimedAt = performance.now();
    const reply = await this.post("/v1/claims", asked, this.#withinMs + waitMs);
    if (reply.answer !== "granted") return replayed(reply) as T;
    const execution = new Execution(this, owner, reply, leaseMs, claimedAt);
    if (!(await execution.begin())) throw new Fenced("the grant was heard of too late, and nothing was started");
    return await execute(execution, work);
  }

  /**
   * Makes a function happen once per key. `key` and `payload` are computed from the call's arguments; the execution
   * comes after them.
   */
  idempotent<A extends unknown[], T extends Json | Uint8Array | void>(
    options: Omit<RunOptions, "key" | "payload"> & {
      key: string | ((...args: A) => string);
      payload?: (...args: A) => Json;
    },
    work: (...args: [...A, Execution]) => Promise<T> | T,
  ): (...args: A) => Promise<T> {
    const { key, payload, ...rest } = options;
    return (...args: A) => {
      const asked: RunOptions = { ...rest, key: typeof key === "string" ? key : key(...args) };
      if (payload !== undefined) asked.payload = payload(...args);
      return this.run(asked, (execution) => work(...args, execution));
    };
  }
}

async function execute<T extends Json | Uint8Array | void>(
  execution: Execution,
  work: (execution: Execution) => Promise<T> | T,
): Promise<T> {
  let result: T;
  try {
    result = await work(execution);
  } catch (error) {
    if (error instanceof NotExecuted) await execution.end("release", { keep_fingerprint: !error.corrected });
    // It may have happened: nobody is told otherwise.
    else await execution.end("abandon", {});
    throw error;
  }
  let outcome: Outcome;
  try {
    outcome = outcomeOf(result);
  } catch (error) {
    // It is done and must not run again, although what it returned cannot be kept.
    await execution.end("complete", { outcome: { tombstone: "discarded" } });
    throw new AnswerNotKept(`what the work returned cannot be written as JSON: ${error}`, { cause: error });
  }
  const answer = await execution.end("complete", { outcome });
  if (answer === "fenced" || answer === "alarm") throw new Fenced(`another attempt has taken over (${answer})`);
  // The first caller gets what later ones will get.
  return valueOf(outcome) as T;
}

function replayed(reply: Reply): Json | Uint8Array {
  switch (reply.answer) {
    case "replay":
      return valueOf(reply.outcome);
    case "busy":
      throw new InFlight(reply.left_ms);
    case "held":
    case "recover":
      throw new OutcomeUnknown(reply.id, reply.fence);
    case "mismatch":
      throw new KeyReused("the key was used for another request");
    default:
      throw new Fenced("another attempt has taken over");
  }
}

function outcomeOf(value: Json | Uint8Array | void): Outcome {
  if (value instanceof Uint8Array) {
    const text = Array.from(value, (byte) => String.fromCharCode(byte)).join("");
    return { content_type: "application/octet-stream", base64: btoa(text) };
  }
  // What cannot be read back as it was is not recorded as if it could.
  const text = JSON.stringify(value ?? null);
  if (text === undefined) throw new TypeError("functions and symbols are not JSON");
  return { json: JSON.parse(text) as Json };
}

function valueOf(outcome: Outcome | null): Json | Uint8Array {
  if (outcome === null) throw new AnswerNotKept("the value was erased");
  if (outcome.json !== undefined) return outcome.json;
  if (outcome.base64 !== undefined && outcome.content_version === undefined) {
    return Uint8Array.from(atob(outcome.base64), (character) => character.charCodeAt(0));
  }
  throw new AnswerNotKept(`the answer was not kept: ${outcome.tombstone ?? "it was written by another door"}`);
}
