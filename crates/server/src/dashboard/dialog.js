// A dialog that keeps the focus until it is answered, and gives it back to what opened it.

import { h } from "./dom.js";

const REACHABLE = "a[href], button:not([disabled]), input:not([disabled]), select, textarea, summary, [tabindex='0']";

/**
 * Opens a dialog. Escape, its close button and `close()` end it.
 * @param {{title: string, tone?: string, content: (close: () => void) => (Node | string | null)[]}} what
 */
export function open(what) {
  const opener = document.activeElement;
  const heading = h("h2", { id: "dialog-title" }, what.title);
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", {
    "aria-labelledby": "dialog-title",
    "aria-describedby": "dialog-text",
    "data-tone": what.tone,
  }));
  const close = () => dialog.close();
  dialog.append(
    h("div", { class: "dialog-head" }, heading,
      h("button", { class: "icon-button", type: "button", "aria-label": "Close", onclick: close }, "×")),
    h("div", { class: "dialog-body" }, what.content(close)),
  );
  dialog.addEventListener("keydown", (event) => keepInside(dialog, event));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    else document.getElementById("main")?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  const first = dialog.querySelector("[data-first]") ?? dialog.querySelector(".dialog-body button, .dialog-body input");
  if (first instanceof HTMLElement) first.focus();
  return dialog;
}

/** Is one open? */
export function isOpen() {
  return document.querySelector("dialog[open]") !== null;
}

/** Tab goes round inside: the browser's own bar is not part of the question. */
function keepInside(/** @type {HTMLDialogElement} */ dialog, /** @type {KeyboardEvent} */ event) {
  if (event.key !== "Tab") return;
  const all = [...dialog.querySelectorAll(REACHABLE)].filter((element) => element.getClientRects().length > 0);
  const [first, last] = [all.at(0), all.at(-1)];
  const here = document.activeElement;
  const to = event.shiftKey && here === first ? last : !event.shiftKey && here === last ? first : null;
  if (to instanceof HTMLElement) {
    event.preventDefault();
    to.focus();
  }
}
