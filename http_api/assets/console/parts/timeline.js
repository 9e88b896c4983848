// Who held a slot, and when: a lane for each writer, a bar for each tenure, a cross for each write of a zombie.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { began, ended, exact, moment, plural, span, visible } from "./format.js";

const LANE = 40;
const AXIS = 26;
const LANES_MAX = 8;
const LABEL_WIDTH = 132;
const MIN_BAR = 3;
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800].map((s) => s * 1000);
const OTHERS = "others";
const RANGES = [["5 min", 300e3], ["1 h", 3600e3], ["1 d", 86400e3], ["all", 0]];

/** Tenures with times on the wall clock. The lease clock stands still without a leader, so an end may lie too early. */
export function onWallClock(fences, now) {
  return fences
    .filter((tenure) => tenure.since_unix_ms !== null)
    .map((tenure) => {
      const length = tenure.until_ms === null ? null : tenure.until_ms - tenure.since_ms;
      const from = tenure.since_unix_ms;
      return { ...tenure, from, until: length === null ? now : Math.min(now, from + length), isNow: length === null };
    });
}

export const writerOf = (tenure) => visible(tenure.producer_name);

/** The writers that get a lane: those of the latest tenures; the rest share one, with writes under the grants of none. */
function lanesOf(tenures, refused) {
  const names = [...new Set(tenures.map(writerOf))];
  const tenureOf = (write) => tenures.find((each) => each.grant === write.grant);
  const isShared = names.length > LANES_MAX || !refused.every(tenureOf);
  const shown = isShared ? [...names.slice(0, LANES_MAX - 1), OTHERS] : names;
  const of = (tenure) => shown.indexOf(tenure && shown.includes(writerOf(tenure)) ? writerOf(tenure) : OTHERS);
  return { names: shown, of, ofWrite: (write) => of(tenureOf(write)) };
}

function ticks(from, until, width) {
  const about = (until - from) / Math.max(2, width / 110);
  const step = STEPS_MS.find((each) => each >= about) || STEPS_MS.at(-1);
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.floor((until - first) / step) + 1 }, (_, place) => first + place * step);
}

/** What is marked: a tenure, or a refused write, with the words that tell about it. */
function wordsOf(chosen) {
  if (!chosen) return null;
  if (chosen.code) {
    const bits = [chosen.reason?.replaceAll("_", " "), chosen.fence_epoch !== null && `with epoch ${chosen.fence_epoch}`];
    return `Write refused at ${moment(chosen.at_ms)}: ${chosen.code} ${bits.filter(Boolean).join(", ")}`;
  }
  const until = chosen.isNow ? "now" : moment(chosen.until);
  return `${visible(chosen.producer_name)}, epoch ${chosen.epoch}, ${moment(chosen.from)} to ${until}: ${began(chosen.operation)}; ${ended(chosen.end)}`;
}

function Certificate({ chosen }) {
  if (!chosen) {
    return html`<p class="certificate soft">Point at a bar or a cross, or move there with the arrow keys, to read its certificate.</p>`;
  }
  if (chosen.code) {
    return html`<dl class="certificate bad">
      <div><dt>Refused</dt><dd>${chosen.code}${chosen.reason ? `, ${chosen.reason.replaceAll("_", " ")}` : ""}</dd></div>
      <div><dt>At</dt><dd title=${exact(chosen.at_ms)}>${moment(chosen.at_ms)}</dd></div>
      <div><dt>Epoch</dt><dd>${chosen.fence_epoch ?? "–"}</dd></div>
      <div><dt>Grant</dt><dd class="mono">${chosen.grant ?? "none"}</dd></div>
      <div><dt>Producer, sequence</dt><dd>${chosen.producer_id ?? "–"}, ${chosen.sequence ?? "–"}</dd></div>
      <div><dt>Request</dt><dd class="mono">${chosen.request}</dd></div>
      ${chosen.outcome && html`<div><dt>The batch is</dt><dd>${chosen.outcome.state}</dd></div>`}
    </dl>`;
  }
  return html`<dl class="certificate">
    <div><dt>Epoch</dt><dd><b>${chosen.epoch}</b></dd></div>
    <div><dt>Writer</dt><dd><b>${visible(chosen.producer_name)}</b>${chosen.client_id ? ` of ${visible(chosen.client_id)}` : ""}</dd></div>
    <div><dt>Mode</dt><dd>${chosen.mode}</dd></div>
    <div><dt>Grant</dt><dd class="mono">${chosen.grant}</dd></div>
    <div><dt>Began</dt><dd title=${exact(chosen.from)}>${moment(chosen.from)}, ${began(chosen.operation)}</dd></div>
    <div><dt>Ended</dt><dd>${chosen.isNow ? "holds it now" : `${moment(chosen.until)}, ${visible(ended(chosen.end))}`}</dd></div>
    <div><dt>Held</dt><dd>${span(chosen.until - chosen.from)}</dd></div>
    <div><dt>Refused after its end</dt><dd>${chosen.refused ? html`<b class="bad-text">${plural(chosen.refused, "write")}</b>` : "none"}</dd></div>
  </dl>`;
}

function useWidth(ref) {
  const [width, setWidth] = useState(800);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/** The time that is shown: the last `range` ms, or all; it ends now. */
function useWindow(tenures, refused, now) {
  const [range, setRange] = useState(0);
  const first = Math.min(now - 10e3, ...tenures.map((each) => each.from), ...refused.map((each) => each.at_ms));
  const from = range ? now - range : first;
  const margin = (now - from) * 0.03;
  return { from: from - margin, until: now + margin, range, setRange };
}

/**
 * `fences` as the partition tells them, the latest first; `refused`: refused writes of this partition. `marks`:
 * [{ at, text }] of a drill, drawn as lines.
 */
export function Timeline({ fences, refused = [], now = Date.now(), marks = [], ranges = true }) {
  const box = useRef(null);
  const width = useWidth(box);
  const tenures = useMemo(() => onWallClock(fences, now), [fences, now]);
  const lanes = useMemo(() => lanesOf(tenures, refused), [tenures, refused]);
  const [key, setKey] = useState(null);
  const { from, until, range, setRange } = useWindow(tenures, refused, now);
  const label = width < 560 ? 76 : LABEL_WIDTH;
  const x = (at) => label + ((at - from) / (until - from)) * (width - label - 8);
  const height = AXIS + lanes.names.length * LANE;
  const items = [
    ...tenures.filter((each) => each.until >= from).map((each) => ({ key: `${each.grant}/${each.epoch}`, at: each.from, of: each })),
    ...refused.filter((each) => each.at_ms >= from).map((each) => ({ key: each.request, at: each.at_ms, of: each })),
  ].sort((one, other) => one.at - other.at);
  const chosen = items.find((item) => item.key === key)?.of;
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !items.length) return;
    event.preventDefault();
    const place = items.findIndex((item) => item.key === key);
    setKey(items[(place + step + items.length) % items.length].key);
  };
  return html`<div class="timeline">
    ${ranges &&
    html`<div class="ranges" role="group" aria-label="Time shown">
      ${RANGES.map(
        ([text, ms]) => html`<button class="small" aria-pressed=${ms === range} onClick=${() => setRange(ms)}>${text}</button>`,
      )}
    </div>`}
    <div ref=${box} class="timeline-box" tabindex="0" role="group" onKeyDown=${move}
      aria-label="Who held the slot over time. The arrow keys go from tenure to tenure.">
      <svg width=${width} height=${height} aria-hidden="true">
        <${Grid} ...${{ from, until, x, width, height, label, lanes, now }} />
        <${Takeovers} ...${{ tenures, lanes, x, from }} />
        ${tenures
          .filter((each) => each.until >= from)
          .map((each) => {
            const left = Math.max(label, x(each.from));
            const size = Math.max(MIN_BAR, x(each.until) - left);
            const id = `${each.grant}/${each.epoch}`;
            const shade = each.isNow ? "now" : each.mode === "Shared" ? "shared" : "past";
            const y = lanes.of(each) * LANE;
            return html`<g key=${id} class=${`bar ${shade}${id === key ? " chosen" : ""}`} onMouseEnter=${() => setKey(id)} onClick=${() => setKey(id)}>
              <rect x=${left} y=${y + 9} width=${size} height=${LANE - 18} rx="4" />
              ${size > 22 && html`<text x=${left + 7} y=${y + LANE / 2 + 4}>${size > 74 ? `epoch ${each.epoch}` : each.epoch}</text>`}
            </g>`;
          })}
        ${refused
          .filter((each) => each.at_ms >= from)
          .map((each) => {
            const at = x(each.at_ms);
            const y = lanes.ofWrite(each) * LANE + LANE / 2;
            return html`<g key=${each.request} class=${`cross${each.request === key ? " chosen" : ""}`} onMouseEnter=${() => setKey(each.request)} onClick=${() => setKey(each.request)}>
              <circle cx=${at} cy=${y} r="9" />
              <path d=${`M${at - 4} ${y - 4}l8 8m0-8l-8 8`} />
            </g>`;
          })}
        ${marks.map((mark) => html`<g class="drill-mark"><path d=${`M${x(mark.at)} 0V${height - AXIS}`} /><title>${mark.text}</title></g>`)}
      </svg>
    </div>
    <div aria-live="polite" class="unseen">${wordsOf(chosen)}</div>
    <${Certificate} chosen=${chosen} />
  </div>`;
}

function Grid({ from, until, x, width, height, label, lanes, now }) {
  const bottom = height - AXIS;
  const room = label < 100 ? 9 : 16;
  return html`<g class="grid">
    ${lanes.names.map(
      (name, place) => html`<g>
        <path class="lane" d=${`M0 ${(place + 1) * LANE}H${width}`} />
        <text class="who" x="0" y=${place * LANE + LANE / 2 + 4}>${name.length > room ? `${name.slice(0, room - 1)}…` : name}<title>${name}</title></text>
      </g>`,
    )}
    ${ticks(from, until, width - label)
      .filter((at) => x(at) > label + 4 && x(at) < width - 24)
      .map(
        (at) => html`<g>
          <path class="tick" d=${`M${x(at)} 0V${bottom}`} />
          <text class="time" x=${x(at)} y=${height - 8}>${tickText(at, until - from)}</text>
        </g>`,
      )}
    <path class="now-line" d=${`M${x(now)} 0V${bottom}`} />
  </g>`;
}

function tickText(at, length) {
  const date = new Date(at);
  if (length > 2 * 86400e3) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: length < 600e3 ? "2-digit" : undefined });
}

/** A line from the writer that lost the slot to the one that took it over. */
function Takeovers({ tenures, lanes, x, from }) {
  const ordered = [...tenures].sort((one, other) => one.from - other.from);
  return ordered
    .map((each, place) => [ordered[place - 1], each])
    .filter(([before, each]) => before && each.from >= from && lanes.of(before) !== lanes.of(each) && before.end && before.end !== "released")
    .map(([before, each]) => {
      const y1 = lanes.of(before) * LANE + LANE / 2;
      const y2 = lanes.of(each) * LANE + LANE / 2;
      return html`<path class="takeover" d=${`M${x(each.from)} ${y1}V${y2}`} />`;
    });
}

/** The moment of now, every `ms` milliseconds. */
export function useNow(ms = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (document.hidden ? undefined : setNow(Date.now())), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return now;
}
