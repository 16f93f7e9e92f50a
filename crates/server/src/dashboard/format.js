// Numbers and times, for people.

const WHOLE = new Intl.NumberFormat("en-GB");

/** 1,234,567. @param {number | null | undefined} number */
export function count(number) {
  return number === null || number === undefined ? "–" : WHOLE.format(number);
}

/** A rate or a time with as many digits as help: 0.4, 12, 1,234. @param {number | null | undefined} number */
export function figure(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return "–";
  if (number === 0) return "0";
  if (number < 0.1) return number.toFixed(2);
  if (number < 10) return number.toFixed(1);
  return WHOLE.format(Math.round(number));
}

/** @param {number | null | undefined} number */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, unit] = [number, 0];
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : figure(value)} ${units[unit]}`;
}

/** The two largest units: 3 h 12 min. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  /** @type {[number, string][]} */
  const units = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let left = Math.round(ms / 1000);
  const told = [];
  for (const [seconds, name] of units) {
    const whole = Math.floor(left / seconds);
    left -= whole * seconds;
    if (whole > 0) told.push(`${whole} ${name}`);
    else if (told.length > 0) break;
    if (told.length === 2) break;
  }
  return told.join(" ");
}

/** How far away a time is: “12 s ago”, “in 3 min”. @param {string | null | undefined} at */
export function distance(at) {
  if (!at) return "–";
  const ms = Date.parse(at) - Date.now();
  if (Math.abs(ms) < 1000) return "now";
  return ms < 0 ? `${duration(-ms)} ago` : `in ${duration(ms)}`;
}

/** 2026-11-15 20:31:02.123 UTC, always UTC: logs are. @param {string | null | undefined} at */
export function moment(at) {
  const time = at ? new Date(at) : null;
  if (!time || Number.isNaN(time.getTime())) return "–";
  return `${time.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

/** 20:31:02. @param {string} at */
export function clockTime(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "–" : time.toISOString().slice(11, 19);
}

/** The first eight digits, as in logs. @param {string} id */
export function short(id) {
  return id.slice(0, 8);
}
