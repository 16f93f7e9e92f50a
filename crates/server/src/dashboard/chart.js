// Small drawings: stacked areas, lines and a bar. They only draw; what is drawn is also there as text.

import { fill, h, s, say } from "./dom.js";
import { figure } from "./format.js";
import { SAMPLES_MAX } from "./live.js";

const WIDTH = 600;
const HEIGHT = 160;

/** A round number at or above `value`: 1, 2 or 5 times a power of ten. @param {number} value @param {number} least */
function ceiling(value, least) {
  const wanted = Math.max(value, least);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= wanted * 0.9999) ?? 10;
  return step * power;
}

/** @param {number} index @param {number} length */
function x(index, length) {
  return WIDTH - ((length - 1 - index) * WIDTH) / (SAMPLES_MAX - 1);
}

/** @param {number} value @param {number} index @param {number} length @param {number} top */
function point(value, index, length, top) {
  return `${x(index, length).toFixed(1)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`;
}

/** @param {number[]} values @param {number} top */
function line(values, top) {
  return values.map((value, index) => point(value, index, values.length, top)).join(" L");
}

/** The same with gaps where nothing is known. @param {(number | null)[]} values @param {number} top */
function broken(values, top) {
  let path = "";
  values.forEach((value, index) => {
    if (value === null) return;
    const isNew = index === 0 || values[index - 1] === null;
    path += `${isNew ? " M" : " L"}${point(value, index, values.length, top)}`;
  });
  return path;
}

/** A frame with a grid and the labels of its axes. @param {string} label */
function frame(label) {
  const areas = s("g");
  const grid = s("g", { class: "grid" }, [0, 0.5, 1].map((part) =>
    s("line", { x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
  ));
  const drawing = s("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  }, grid, areas);
  const scale = [1, 0.5, 0].map(() => h("span"));
  const element = h("div", { class: "chart" },
    h("div", { class: "scale", "aria-hidden": "true" }, scale),
    h("div", { class: "plot" }, drawing),
    h("div", { class: "time", "aria-hidden": "true" }, h("span", {}, "2 min ago"), h("span", {}, "1 min"), h("span", {}, "now")),
  );
  /** @param {number} top @param {string} unit */
  const mark = (top, unit) => {
    [1, 0.5, 0].forEach((part, index) => {
      const [text, span] = [part === 0 ? "0" : figure(top * part), scale[index]];
      if (span) say(span, index === 0 ? `${text}${unit}` : text);
    });
  };
  return { element, areas, mark };
}

/**
 * One area for each kind, on top of each other.
 * @param {string} label
 * @param {string[]} kinds
 */
export function stacked(label, kinds) {
  const { element, areas, mark } = frame(label);
  const paths = kinds.map((kind) => s("path", { class: `area kind-${kind}` }));
  areas.append(...paths);
  return {
    element,
    /** @param {Record<string, number>[]} samples */
    update(samples) {
      if (samples.length < 2) return;
      const totals = samples.map((sample) => kinds.reduce((sum, kind) => sum + (sample[kind] ?? 0), 0));
      const top = ceiling(Math.max(...totals) * 1.08, 2);
      mark(top, " /s");
      let base = samples.map(() => 0);
      kinds.forEach((kind, index) => {
        const next = base.map((value, at) => value + (samples[at]?.[kind] ?? 0));
        const back = line(base, top).split(" L").reverse().join(" L");
        const shows = next.some((value, at) => value > (base[at] ?? 0));
        paths[index]?.setAttribute("d", shows ? `M${line(next, top)} L${back} Z` : "");
        base = next;
      });
    },
  };
}

/** Lines over the same axis. @param {string} label @param {string[]} names @param {string} unit */
export function lines(label, names, unit) {
  const { element, areas, mark } = frame(label);
  const paths = names.map((name) => s("path", { class: `line line-${name}` }));
  areas.append(...paths);
  return {
    element,
    /** @param {any[]} samples */
    update(samples) {
      const values = names.map((name) => samples.map((sample) => sample[name] ?? null));
      const known = values.flat().filter((value) => value !== null);
      const top = ceiling(Math.max(0, ...known) * 1.08, 1);
      mark(top, unit);
      values.forEach((series, index) => paths[index]?.setAttribute("d", broken(series, top)));
    },
  };
}

/** A bar of shares. @param {{name: string, value: number, text: string}[]} shares @param {Element} bar */
export function bar(shares, bar) {
  const sum = shares.reduce((all, share) => all + share.value, 0);
  const pieces = shares.filter((share) => share.value > 0).map((share) => {
    const piece = h("span", { class: `piece state-${share.name}`, title: share.text });
    // Through the object model: the policy of this page forbids styles written into the document.
    piece.style.flexGrow = String(Math.max(share.value / sum, 0.01));
    return piece;
  });
  fill(bar, pieces);
}
