// Finds a record by its key. The key travels in a body and stays out of addresses and logs.

import { post } from "./api.js";
import { fill, h } from "./dom.js";
import { short } from "./format.js";
import { input } from "./resolve.js";
import { failed, notice } from "./states.js";

/** @param {{go: (where: string) => void}} page */
export function find(page) {
  const key = input("key", "Key", { required: true, maxlength: 255, placeholder: "order-1", "data-first": true });
  const principal = input("principal", "Caller (optional)", { type: "password", placeholder: "Bearer …" });
  const namespace = input("namespace", "Namespace (optional)", {});
  const method = input("method", "Method (optional)", { placeholder: "POST" });
  const path = input("path", "Path (optional)", { placeholder: "/payments" });
  const result = h("div", { role: "status" });
  const form = h("form", { class: "stack" },
    key.element, principal.element,
    h("p", { class: "muted" }, "What the caller shows, as the principal rule reads it: the whole ", h("code", {}, "Authorization"), " value, unless another rule is configured. Two callers with the same key have two records. Left empty, it is the caller without a credential."),
    h("details", {}, h("summary", {}, "Namespace, method and path"),
      h("div", { class: "stack" }, namespace.element, method.element, path.element,
        h("p", { class: "muted" }, "Only where the route has a namespace of its own, or makes the path a part of the scope."))),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Find")));
  const look = async () => {
    /** @type {Record<string, string>} */
    const asked = {};
    for (const { field, value } of [key, principal, namespace, method, path]) if (value()) asked[field.name] = value();
    try {
      const { id, record } = await post("/api/find", asked);
      if (record) page.go(`#/records/${record.id}`);
      else fill(result, missing(id));
    } catch (error) {
      fill(result, failed(error, () => void look()));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void look();
  });
  const element = h("div", { class: "page narrow" },
    h("div", { class: "page-head" }, h("h1", {}, "Find by key")),
    h("section", { class: "card" }, form), result);
  return { title: "Find", element, update: () => undefined };
}

/** @param {string} id */
function missing(id) {
  return h("section", { class: "card" }, notice("No record under this key",
    h("p", {}, "For this caller it would be ", h("code", {}, short(id)), ", and there is none. Either the request never came, or its retention is over, or another caller sent it: look at the caller above, credential for credential.")));
}
