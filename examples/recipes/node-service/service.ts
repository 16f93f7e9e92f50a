/**
 * A Node service that charges a card once for each order, with the claims API. Node 22.18 or later runs it as it is:
 *
 *   onlyonce serve --store file:./onlyonce-data
 *   node examples/recipes/node-service/service.ts
 *   curl localhost:3000/charges -d '{"order": "order-7", "amount": 100}'
 */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { Claims, InFlight, KeyReused, NotExecuted, OutcomeUnknown } from "../../../clients/onlyonce.ts";

type Order = { order: string; amount: number };

const claims = new Claims(process.env.CLAIMS ?? "http://127.0.0.1:8090");
const charges: string[] = [];

// The key is what the operation is, so that every retry makes the same one, also after a crash of the caller.
const charge = claims.idempotent(
  { key: (asked: Order) => `charge/${asked.order}`, payload: (asked: Order) => ({ amount: asked.amount }) },
  async (asked: Order) => {
    // Nothing happened: the order may be charged later, with another amount.
    if (asked.amount <= 0) throw new NotExecuted("nothing to charge", { corrected: true });
    charges.push(asked.order); // the call to the bank
    return { charge: `ch_${charges.length}`, order: asked.order };
  },
);

async function answer(asked: Order): Promise<[number, unknown]> {
  try {
    return [201, await charge(asked)];
  } catch (error) {
    if (error instanceof NotExecuted) return [400, { error: error.message }];
    if (error instanceof KeyReused) return [422, { error: "the order was charged with another amount" }];
    // OutcomeUnknown: an earlier attempt died inside. Somebody looks at the bank and resolves it.
    if (error instanceof InFlight || error instanceof OutcomeUnknown) return [409, { error: error.message }];
    return [503, { error: "try again: the same order is charged once" }];
  }
}

const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const [status, document] = request.method === "POST" ? await answer(JSON.parse(body)) : [200, { charges: charges.length }];
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(document));
});

const [host, port] = (process.env.LISTEN ?? "127.0.0.1:3000").split(":");
server.listen(Number(port), host, () => {
  const { address, port } = server.address() as AddressInfo;
  console.log(`listening on ${address}:${port}`);
});
