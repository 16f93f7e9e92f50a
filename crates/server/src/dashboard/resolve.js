// The writes: each behind a dialog that names its consequence and asks why, for the audit log.

import { Problem, post } from "./api.js";
import { open } from "./dialog.js";
import { fill, h } from "./dom.js";
import { duration, short } from "./format.js";
import { live } from "./live.js";

/** @typedef {import("./api.js").StoredRecord} StoredRecord */

const WHO = "onlyonce.who";

const EXECUTED = {
  title: "It was executed",
  tone: "calm",
  consequence: "Every later retry gets this answer, and the work never runs again.",
  check: "Look in the system that does the work: is the effect there?",
  button: "Record this answer",
  action: "resolve",
};
const NOT_EXECUTED = {
  title: "It was not executed",
  tone: "danger",
  consequence: "The key is freed and the next retry runs the work. If it had happened after all, it happens twice.",
  check: "Look in the system that does the work: is the effect really not there, and can it no longer happen?",
  button: "Free the key",
  action: "resolve",
};
const ERASE = {
  title: "Erase what is kept",
  tone: "danger",
  consequence: "The stored answer is removed and cannot be brought back. Retries are told that it was not kept; the work does not run again.",
  check: "",
  button: "Erase it",
  action: "erase",
};

/** @param {StoredRecord} record @param {"executed" | "not-executed"} verdict @param {() => void} done */
export function resolve(record, verdict, done) {
  const fixed = { fence: record.fence, verdict };
  if (verdict === "executed") {
    const outcome = outcomeFields();
    ask(record, EXECUTED, outcome.element, done, () => ({ ...fixed, outcome: outcome.read() }));
  } else {
    const sure = sureness(record);
    ask(record, NOT_EXECUTED, sure.element, done, () => ({ ...fixed, ...sure.read() }), sure.refused);
  }
}

/** An attempt that may still be running is freed only by somebody who says that it is not. @param {StoredRecord} record */
function sureness(record) {
  const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", name: "force" }));
  const left = record.run_until ? Date.parse(record.run_until) - Date.now() : 0;
  const element = h("label", { class: "check sure" }, box,
    h("span", {}, `The attempt may still be running${left > 0 ? `, for another ${duration(left)}` : ""}. I made sure that it is not, and that it can no longer happen.`));
  const show = (/** @type {boolean} */ wanted) => {
    element.hidden = !wanted;
    box.required = wanted;
  };
  show(left > 0);
  return {
    element,
    read: () => (box.checked ? { force: true } : {}),
    // The clocks may differ: it is the store's that counts.
    refused: (/** @type {Problem} */ problem) => problem.answer === "too-early" && show(true),
  };
}

/** @param {StoredRecord} record @param {() => void} done */
export function erase(record, done) {
  ask(record, ERASE, null, done, () => ({}));
}

/**
 * @param {StoredRecord} record
 * @param {typeof EXECUTED} what
 * @param {HTMLElement | null} more
 * @param {() => void} done
 * @param {() => Record<string, unknown>} body
 * @param {(problem: Problem) => void} [refused]
 */
function ask(record, what, more, done, body, refused) {
  open({
    title: what.title,
    tone: what.tone,
    content: (close) => {
      const why = input("why", "Why (goes into the audit log)", { required: true, maxlength: 500, "data-first": true });
      const who = input("who", "Your name (optional)", { maxlength: 100, value: remembered(), autocomplete: "name", placeholder: "dashboard" });
      const trouble = h("p", { class: "trouble", role: "alert" });
      const sure = h("button", { type: "submit", class: what.tone === "danger" ? "danger" : "primary" }, what.button);
      const form = h("form", { class: "stack" },
        h("p", { class: "consequence", id: "dialog-text" }, what.consequence),
        what.check && h("p", { class: "muted" }, what.check),
        h("p", { class: "muted" }, "Record ", h("code", {}, short(record.id)), ` · fence ${record.fence} · attempt ${record.attempt}`),
        more, why.element, who.element, trouble,
        h("div", { class: "row end" },
          h("button", { type: "button", onclick: close }, "Cancel"), sure),
      );
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        sure.setAttribute("disabled", "");
        remember(who.value());
        try {
          await post(`/api/records/${record.id}/${what.action}`, { ...body(), why: why.value(), ...(who.value() ? { who: who.value() } : {}) });
          close();
          done();
        } catch (error) {
          sure.removeAttribute("disabled");
          fill(trouble, explained(error));
          if (error instanceof Problem) refused?.(error);
        }
      });
      return [form];
    },
  });
}

/** @param {unknown} error */
function explained(error) {
  if (!(error instanceof Problem)) return String(error);
  if (error.isUnreachable) {
    return "Nobody answered: it may have been done or not. Close this and look at the record before you try again.";
  }
  if (error.status === 409) return `Nothing was changed: ${error.message} Close this and look at the record again.`;
  if (error.status >= 500) return `It may have been done or not: ${error.message} Close this and look at the record before you try again.`;
  return `Nothing was changed: ${error.message}`;
}

/** The answer that retries are to get. Only HTTP has a status. */
function outcomeFields() {
  const isHttp = (live.overview?.command ?? "proxy") === "proxy";
  const status = input("status", "Status", { type: "number", min: 200, max: 599, value: 200, required: isHttp });
  const type = input("content-type", "Content type", { value: "application/json" });
  const text = /** @type {HTMLTextAreaElement} */ (h("textarea", { id: "body", rows: 3, spellcheck: "false", placeholder: '{"id": "…"}' }));
  const element = h("fieldset", { class: "stack" },
    h("legend", {}, "The answer that retries get"),
    h("div", { class: "row fields" }, isHttp ? status.element : null, type.element),
    h("label", { class: "field" }, h("span", {}, "Body (left empty, retries are told that it was not kept)"), text),
  );
  const read = () => ({
    ...(isHttp ? { status: Number(status.value()) } : {}),
    ...(text.value === "" ? {} : { content_type: type.value(), body: text.value }),
  });
  return { element, read };
}

/**
 * A labelled field.
 * @param {string} name @param {string} label @param {Record<string, unknown>} [attributes]
 */
export function input(name, label, attributes = {}) {
  const field = /** @type {HTMLInputElement} */ (h("input", { name, id: name, autocomplete: "off", spellcheck: "false", ...attributes }));
  const element = h("label", { class: "field" }, h("span", {}, label), field);
  return { element, field, value: () => field.value.trim() };
}

function remembered() {
  try {
    return sessionStorage.getItem(WHO) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} who */
function remember(who) {
  try {
    sessionStorage.setItem(WHO, who);
  } catch {
    // Then it is asked for again.
  }
}
