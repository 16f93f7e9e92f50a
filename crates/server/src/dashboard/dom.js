// Builds elements. Text is only ever set as text: what records hold was written by strangers.

/** @typedef {Node | string | number | null | undefined | false} Part */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes, listeners (`onclick: fn`) and children.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Part | Part[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (built(document.createElement(tag), attributes, children));
}

/**
 * The same for a part of a drawing.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Part | Part[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (built(document.createElementNS(SVG, tag), attributes, children));
}

/** @param {Element} element @param {Record<string, unknown>} attributes @param {(Part | Part[])[]} children */
function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...parts(children));
  return element;
}

/** @param {(Part | Part[])[]} children @returns {(Node | string)[]} */
function parts(children) {
  return children
    .flat()
    .filter((part) => part !== null && part !== undefined && part !== false)
    .map((part) => (part instanceof Node ? part : String(part)));
}

/** Replaces what is in `element`. @param {Element} element @param {...(Part | Part[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...parts(children));
}

/** Sets text, and touches nothing when it is the same. @param {Element} element @param {string | number} text */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = String(text);
}

/**
 * Shows `items` in `container`, one element each, and keeps those that stay: what has the focus keeps it.
 * @template T
 * @param {Element} container
 * @param {T[]} items
 * @param {(item: T) => string} name
 * @param {(item: T) => Element} make
 * @param {(element: Element, item: T) => void} [update]
 */
export function keep(container, items, name, make, update) {
  const there = new Map([...container.children].map((child) => [child.getAttribute("data-name"), child]));
  const wanted = items.map((item) => {
    const found = there.get(name(item));
    const element = found ?? make(item);
    element.setAttribute("data-name", name(item));
    if (found) update?.(found, item);
    return element;
  });
  const names = new Set(wanted);
  for (const child of [...container.children]) if (!names.has(child)) child.remove();
  wanted.forEach((element, index) => {
    if (container.children[index] !== element) container.insertBefore(element, container.children[index] ?? null);
  });
}
