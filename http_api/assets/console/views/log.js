// The log of a partition: its newest records, from an offset, from a time, or by key; live, pretty, raw, as a file.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, keep, path, send, withQuery } from "../parts/api.js";
import { bytes, count, exact, moment, plural, pretty } from "../parts/format.js";
import { useLive } from "../parts/live.js";
import { change } from "../parts/router.js";
import { Card, Chip, Empty, Field, Loading, Pager, Refused } from "../parts/ui.js";

const SHOWN = 50;
const PAGE_BYTES = 256 * 1024;
/** Records, and pages of them, of one search by key: the log has no index by key, so the page reads them. */
const SCANNED_MAX = 20000;
const SCANS_MAX = 64;
const SCAN_BYTES = 1024 * 1024;
const FILE_BYTES_MAX = 8 * 1024 * 1024;
const LIVE_MS = 1000;

/** Characters of a value that are shown: a page with 16 MiB of text in it stands still. */
const CHARACTERS_MAX = 200_000;
/** Bytes of a binary value that are shown. */
const HEX_MAX = 4096;

/** A text, or bytes that are none; null: neither. */
const textOf = (text, base64) => text ?? (base64 ? `base64:${base64}` : null);
const keyOf = (record) => textOf(record.key, record.key_base64);
const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
/** In a row: text as it is, bytes in hexadecimal digits. */
const lineOf = (record) => record.value ?? (record.value_base64 ? hexOf(bytesOf(record.value_base64.slice(0, 128))) : null);

const hexOf = (data) => [...data].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");

/** Offset, sixteen bytes, and what of them is text, in each line. */
function dump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_MAX); at += 16) {
    const row = data.subarray(at, at + 16);
    const text = [...row].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hexOf(row).padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** What `query` asks for: { records, log_start, log_end, note }. The newest record comes first when `newest`. */
async function read(base, query, signal) {
  if (query.key) return byKey(base, query, signal);
  let { offset } = query;
  if (query.at) {
    const found = await get(`${base}/offsets`, { at: new Date(query.at).getTime() }, { signal });
    if (found.offset < 0) return { records: [], ...found, note: "No record is so young." };
    offset = found.offset;
  }
  if (offset === "") {
    const tail = await get(`${base}/tail`, { n: SHOWN }, { signal });
    return { ...tail, records: tail.records.reverse(), newest: true };
  }
  const page = await get(`${base}/records`, { offset, max_bytes: PAGE_BYTES, meta: "true" }, { signal });
  return { ...page, records: page.records.slice(0, SHOWN) };
}

async function byKey(base, { key, offset }, signal) {
  const found = [];
  let scanned = 0;
  let scans = 0;
  let at = offset || "earliest";
  let page;
  do {
    page = await get(`${base}/records`, { offset: at, max_bytes: SCAN_BYTES, meta: "true" }, { signal });
    scanned += page.records.length;
    found.push(...page.records.filter((record) => keyOf(record) === key));
    at = page.next_offset;
  } while (at < page.log_end && scanned < SCANNED_MAX && ++scans < SCANS_MAX && page.records.length);
  const rest = at < page.log_end ? at : null;
  const note = `${plural(found.length, "record")} with this key among ${count(scanned)} read${rest === null ? "" : `, up to offset ${count(rest)}`}.`;
  return { ...page, records: found.reverse(), newest: true, note, rest };
}

export function Log({ topic, partition, query }) {
  const base = path`/v1/topics/${topic}/partitions/${partition}`;
  const [isLive, setLive] = useState(false);
  const [isRaw, setRaw] = useState(false);
  const { offset = "", at = "", key = "" } = query;
  const asked = JSON.stringify({ offset, at, key });
  const isTail = !offset && !at && !key;
  const log = useLive(async (signal) => ({ asked, ...(await read(base, { offset, at, key }, signal)) }), [base, asked], isLive && isTail ? LIVE_MS : 0);
  const seek = (wanted) => (JSON.stringify(wanted) === asked ? log.refresh() : change(wanted));
  const found = log.data?.asked === asked && log.data;  // a search takes its time: what was there before is not what it found
  return html`<${Card} flush>
    <${Controls} key=${asked} ...${{ query: { offset, at, key }, seek, isLive: isLive && isTail, setLive, isTail, isRaw, setRaw }} />
    ${log.error && html`<${Refused} error=${log.error} />`}
    ${!found && !log.error && html`<${Loading} />`}
    ${found && html`<${Found} key=${asked} log=${found} ...${{ base, isRaw, isTail, isLive: isLive && isTail, name: `${topic}-${partition}` }} />`}
  <//>`;
}

/** What was read, so many records at a time: a search by key may have found thousands. */
function Found({ log, base, name, isRaw, isTail, isLive }) {
  const [first, setFirst] = useState(0);
  const shown = { ...log, records: log.records.slice(first, first + SHOWN) };
  return html`<${Records} log=${shown} isRaw=${isRaw} isLive=${isLive} />
    <${Pager} first=${first} size=${SHOWN} total=${log.records.length} onMove=${setFirst} />
    <${Foot} base=${base} log=${shown} name=${name} isTail=${isTail} />`;
}

function Controls({ query, seek, isLive, setLive, isTail, isRaw, setRaw }) {
  const [form, setForm] = useState(query);
  const set = (name) => (event) => setForm({ offset: "", at: "", key: "", [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    seek(form);
  };
  return html`<form class="log-controls" onSubmit=${submit}>
    <${Field} label="Offset"><input type="number" min="0" value=${form.offset} onInput=${set("offset")} /><//>
    <${Field} label="Time"><input type="datetime-local" step="1" value=${form.at} onInput=${set("at")} /><//>
    <${Field} label="Key"><input value=${form.key} onInput=${set("key")} /><//>
    <button class="primary">Seek</button>
    <button type="button" onClick=${() => seek({ offset: "", at: "", key: "" })}>Newest</button>
    <span class="gap"></span>
    <button type="button" aria-pressed=${isLive} disabled=${!isTail} onClick=${() => setLive(!isLive)}>${isLive ? "Live" : "Go live"}</button>
    <button type="button" aria-pressed=${isRaw} onClick=${() => setRaw(!isRaw)}>Raw</button>
  </form>`;
}

function Records({ log, isRaw, isLive }) {
  const [open, setOpen] = useState(null);
  const seen = useRef(log.log_end);
  const fresh = seen.current;
  useEffect(() => {
    seen.current = log.log_end;
  }, [log.log_end]);
  const goOn = log.rest && html`<button class="small" onClick=${() => change({ offset: log.rest })}>Go on from there</button>`;
  if (!log.records.length) {
    return html`<${Empty} title=${log.note || "The log has no records here"} act=${goOn}>${!log.note && `Log start ${count(log.log_start)}, log end ${count(log.log_end)}.`}<//>`;
  }
  return html`${log.note && html`<p class="log-note">${log.note} ${goOn}</p>`}
    <ol class="records" aria-label="Records">
      ${log.records.map(
        (record) => html`<${Row} key=${record.offset} record=${record} isRaw=${isRaw} isNew=${isLive && record.offset >= fresh}
          isOpen=${open === record.offset} onToggle=${() => setOpen(open === record.offset ? null : record.offset)} />`,
      )}
    </ol>`;
}

function Row({ record, isOpen, isRaw, isNew, onToggle }) {
  const line = lineOf(record);
  return html`<li class=${isNew ? "fresh" : ""}>
    <button class="record" aria-expanded=${isOpen} onClick=${onToggle}>
      <span class="offset">${count(record.offset)}</span>
      <span class="at">${moment(record.timestamp_ms)}</span>
      <span class="epoch" title="Epoch of the writer">e${record.writer_epoch}</span>
      <span class="key">${keyOf(record) ?? html`<i>no key</i>`}</span>
      <span class="value">${record.value_base64 && html`<${Chip}>binary<//> `}${line === null ? html`<i>null</i>` : line.slice(0, 400)}</span>
    </button>
    ${isOpen &&
    html`<div class="record-body">
      <dl class="facts">
        <div class="whole"><dt>Key</dt><dd class="mono">${keyOf(record)?.slice(0, CHARACTERS_MAX) ?? "none"}</dd></div>
        <div><dt>Offset</dt><dd>${count(record.offset)}</dd></div>
        <div><dt>Received</dt><dd>${exact(record.timestamp_ms)}</dd></div>
        <div><dt>Writer's epoch</dt><dd>${record.writer_epoch}</dd></div>
        <div><dt>Producer, epoch, sequence</dt><dd>${record.producer_id ?? "–"}, ${record.producer_epoch ?? "–"}, ${record.sequence ?? "–"}</dd></div>
      </dl>
      ${record.headers?.length > 0 && html`<p class="chips">${record.headers.map((header) => html`<${Chip}>${header.key}: ${textOf(header.value, header.value_base64) ?? "null"}<//>`)}</p>`}
      <${Value} record=${record} isRaw=${isRaw} />
    </div>`}
  </li>`;
}

function Value({ record, isRaw }) {
  const isBinary = record.value === null || record.value === undefined ? Boolean(record.value_base64) : false;
  if (record.value === null && !isBinary) return html`<pre tabindex="0" aria-label="Value">null</pre>`;
  const data = isBinary ? bytesOf(record.value_base64) : new TextEncoder().encode(record.value);
  const whole = isBinary ? (isRaw ? record.value_base64 : dump(data)) : isRaw ? record.value : pretty(record.value, CHARACTERS_MAX);
  const isCut = whole.length > CHARACTERS_MAX || (isBinary && !isRaw && data.length > HEX_MAX);
  return html`<pre tabindex="0" aria-label="Value" class=${isBinary && !isRaw ? "hex" : ""}>${whole.slice(0, CHARACTERS_MAX)}</pre>
    <p class="soft value-foot">${isBinary ? "Binary" : "Text"}, ${bytes(data.length)}${isCut ? "; the beginning is shown" : ""}
      <button class="small" onClick=${() => keep(new Blob([data]), `record-${record.offset}${isBinary ? ".bin" : ".txt"}`)}>Save the value</button></p>`;
}

/** Older and newer records, and the ones shown as a file. */
function Foot({ base, log, name, isTail }) {
  const [error, setError] = useState(null);
  const first = Math.min(...log.records.map((record) => record.offset));
  const last = Math.max(...log.records.map((record) => record.offset));
  const from = log.records.length ? first : log.log_start;
  const download = async (type, ending) => {
    try {
      const answer = await send("GET", withQuery(`${base}/records`, { offset: from, max_bytes: FILE_BYTES_MAX }), { headers: { Accept: type } });
      keep(await answer.blob(), `${name}-from-${from}.${ending}`);
    } catch (refusal) {
      setError(refusal);
    }
  };
  return html`<footer class="log-foot">
    <span class="soft">log start ${count(log.log_start)}, log end ${count(log.log_end)}</span>
    <button class="small" disabled=${!log.records.length || first <= log.log_start} onClick=${() => change({ offset: Math.max(log.log_start, first - SHOWN), at: "", key: "" })}>Older</button>
    <button class="small" disabled=${isTail || !log.records.length || last + 1 >= log.log_end} onClick=${() => change({ offset: last + 1, at: "", key: "" })}>Newer</button>
    <span class="gap"></span>
    <span class="soft">From ${count(from)}, up to ${bytes(FILE_BYTES_MAX)}:</span>
    <button class="small" onClick=${() => download("application/vnd.apache.arrow.stream", "arrows")}>Arrow</button>
    <button class="small" onClick=${() => download("application/x-ndjson", "ndjson")}>JSON lines</button>
    ${error && html`<${Refused} error=${error} />`}
  </footer>`;
}
