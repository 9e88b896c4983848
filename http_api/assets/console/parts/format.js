// Numbers, times and names as people read them. Every function takes null and answers a dash.

const DASH = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const grouped = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const count = (value) => (value === null || value === undefined ? DASH : grouped.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  const step = value < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(value) / 10));
  const scaled = value / 1024 ** step;
  return `${step && scaled < 100 ? scaled.toFixed(1) : Math.round(scaled)} ${UNITS[step]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : grouped.format(Math.round(value));
}

/** A length of time: 340 ms, 12 s, 3 min, 2 h 5 min, 4 d. */
export function span(ms) {
  if (ms === null || ms === undefined) return DASH;
  if (ms === 0) return "0";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60 ? `${minutes % 60} min` : ""}`.trim();
  return `${Math.floor(minutes / 1440)} d`;
}

/** A moment: the time, with the day when it is another one. */
export function moment(unixMs) {
  if (!unixMs) return DASH;
  const at = new Date(unixMs);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

/** The time zone of the browser: UTC+2, Europe/Berlin. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const rest = Math.abs(minutes) % 60;
  const offset = minutes === 0 ? "UTC" : `UTC${minutes > 0 ? "+" : "−"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${rest}` : ""}`;
  return timeZone && timeZone !== "UTC" ? `${offset}, ${timeZone}` : offset;
}

export const exact = (unixMs) => (unixMs ? new Date(unixMs).toISOString() : DASH);

export function ago(unixMs) {
  return unixMs ? `${span(Math.max(1, Date.now() - unixMs))} ago` : DASH;
}

/** A name as text that turns no words beside it around: the characters that do are shown as \u202e. */
export const visible = (text) =>
  text?.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/**
 * JSON, indented, to a little more than `most` characters; any other text as it is. Only the space between changes: as
 * values of JavaScript, long numbers would lose digits, and names change places.
 */
export function pretty(text, most) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const empty = /\s*[}\]]/y;
  const pieces = [];
  const line = (depth) => `\n${"  ".repeat(depth)}`;
  for (let at = 0, depth = 0, length = 0, isQuoted = false; at < text.length && length <= most; at++) {
    let piece = text[at];
    if (isQuoted) {
      isQuoted = piece !== '"';
      if (piece === "\\") piece += text[++at];
    } else if (piece === '"') isQuoted = true;
    else if (piece === ",") piece += line(depth);
    else if (piece === ":") piece += " ";
    else if (piece === "}" || piece === "]") piece = line(--depth) + piece;
    else if (piece === "{" || piece === "[") {
      empty.lastIndex = at + 1;
      if (empty.test(text)) {
        at = empty.lastIndex - 1;
        piece += text[at];
      } else piece += line(++depth);
    } else piece = piece.trim();
    pieces.push(piece);
    length += piece.length;
  }
  return pieces.join("");
}

/** How a tenure came, and how it ended, in words. */
export const BEGAN = {
  acquire: "acquired a free slot",
  resume: "resumed its epoch",
  promotion: "was promoted from the queue",
  eviction: "took over from another",
};

export const ENDED = {
  released: "released it",
  closed: "its session was closed",
  expired: "its session expired",
  superseded: "its own session took it again",
  evicted: "another writer took over",
};

export const began = (operation) => BEGAN[operation] || operation;

export function ended(end) {
  if (!end) return "holds it now";
  if (end.startsWith("fenced")) return `an operator fenced it${end.slice("fenced".length)}`;
  return ENDED[end] || end;
}
