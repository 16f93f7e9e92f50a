/** What the tests in crates/cli/tests/clients run: a scenario by name, whose observations are printed as JSON. */

import { appendFileSync } from "node:fs";

import { AnswerNotKept, Claims, Conflict, NotExecuted, Problem, StepUnknown, request } from "../onlyonce.ts";
import type { Execution, Json, RunOptions } from "../onlyonce.ts";

type Saw = { [name: string]: unknown };

/** What a call gives, or the name of what it throws. */
async function outcome(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof Conflict || error instanceof StepUnknown) return error.constructor.name;
    return (error as Error).message;
  }
}

async function basics(url: string, salt: string): Promise<Saw> {
  const claims = new Claims(url);
  const effects: string[] = [];
  const charge = claims.idempotent(
    { key: (order: string) => `${salt}-${order}`, payload: (_: string, amount: number): Json => ({ amount }) },
    async (order: string, _: number, execution: Execution) => {
      effects.push(order);
      if (execution.attempt !== 1) throw new Error("the first attempt is number 1");
      return { charge: effects.length, of: order };
    },
  );
  const saw: Saw = { first: await charge("order-7", 100), again: await charge("order-7", 100) };
  saw.effects = effects.length;
  saw.other_payload = await outcome(() => charge("order-7", 200));
  const picture = claims.idempotent({ key: `${salt}-picture` }, () => new Uint8Array([0, 255, 16]));
  saw.bytes = Buffer.from(await picture()).toString("hex");
  saw.bytes_again = Buffer.from(await picture()).toString("hex");
  const fail = (): Promise<void> => Promise.reject(new Error("the bank is down"));
  saw.failed = await outcome(() => claims.run({ key: `${salt}-fails` }, fail));
  saw.after_failure = await outcome(() => claims.run({ key: `${salt}-fails` }, fail));
  let runs = 0;
  const refuse = (): void => {
    runs++;
    throw new NotExecuted();
  };
  for (let time = 0; time < 2; time++) await outcome(() => claims.run({ key: `${salt}-refused` }, refuse));
  saw.not_executed_runs = runs;
  const odd = () => (() => 1) as unknown as Json;
  saw.not_json = await outcome(() => claims.run({ key: `${salt}-odd` }, odd));
  saw.after_not_json = await outcome(() => claims.run({ key: `${salt}-odd` }, odd));
  if (saw.not_json !== AnswerNotKept.name) throw new Error("what is not JSON was kept");
  try {
    await claims.post("/v1/nowhere", {});
  } catch (error) {
    saw.no_such_path = (error as Problem).status;
  }
  return saw;
}

async function while_running(url: string, salt: string): Promise<Saw> {
  const claims = new Claims(url);
  const begun = Promise.withResolvers<Execution>();
  const finish = Promise.withResolvers<string>();
  let effects = 0;
  const work = (execution: Execution): Promise<string> => {
    effects++;
    begun.resolve(execution);
    return finish.promise;
  };
  const call = (more: Partial<RunOptions> = {}) =>
    outcome(() => claims.run({ key: `${salt}-slow`, leaseMs: 9000, ...more }, work));
  const first = call();
  const { record } = await begun.promise;
  const saw: Saw = { told: await call() };
  const lease = await leasedUntil(url, record);
  let now = lease;
  while (now === lease) {
    await new Promise((wake) => setTimeout(wake, 100));
    now = await leasedUntil(url, record);
  }
  saw.renewed = now > lease;
  const waiting = call({ waitMs: 60_000 });
  finish.resolve("done");
  saw.first = await first;
  saw.waited = await waiting;
  saw.effects = effects;
  return saw;
}

async function leasedUntil(url: string, record: string): Promise<number> {
  const answer = await fetch(`${url}/v1/claims/${record}`);
  return ((await answer.json()) as { lease_until_ms: number }).lease_until_ms;
}

/** Stands still at `point`, to be killed there. A step that was cut short is repeated only at `repeatable`. */
async function steps(url: string, effects: string, point: string): Promise<Saw> {
  const claims = new Claims(url);
  const stand = async (here: string): Promise<void> => {
    if (here !== point) return;
    process.stdout.write(`${point}\n`);
    await new Promise((wake) => setTimeout(wake, 2 ** 31 - 1));
  };
  const happen = async (what: string): Promise<string> => {
    appendFileSync(effects, `${what}\n`);
    await stand(what);
    return "ch_1";
  };
  const sell = async (execution: Execution): Promise<string> => {
    const charge = await execution.step("charge", () => happen("charge"));
    await stand("charged");
    await execution.step("mail", () => happen("mail"), { repeatable: point === "repeatable" });
    return charge;
  };
  const options: RunOptions = { key: "order-7", leaseMs: 8000, waitMs: 10_000, unknown: "rerun", attempts_max: 1000 };
  for (;;) {
    // The lease of a run that was killed has to end first.
    const sold = await outcome(() => claims.run(options, sell));
    if (!["InFlight", "OutcomeUnknown", "Fenced"].includes(sold as string)) return { sold };
  }
}

async function pay(url: string, key: string, body: string): Promise<Saw> {
  const headers = { Authorization: "Bearer sesame" };
  const answer = await request(`${url}/pay`, { key, body, headers, attemptsMax: 1000, withinMs: 300_000 });
  return { status: answer.status, replayed: answer.headers.get("idempotency-replayed") };
}

const scenarios: { [name: string]: (...args: string[]) => Promise<Saw> } = { basics, while_running, steps, request: pay };
const [name = "", ...args] = process.argv.slice(2);
console.log(JSON.stringify(await scenarios[name]!(...args)));
