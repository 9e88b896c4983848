// Writes that were refused: whose, under which epoch, what became of the batch, and what to do next.

import { html, useState } from "../vendor/preact.js";
import { count, exact, moment, plural, visible } from "../parts/format.js";
import { useGet } from "../parts/live.js";
import { change, link } from "../parts/router.js";
import { Answer, Chip, Card, Empty, Facts, Page, Pager, Search } from "../parts/ui.js";

const MOST = 1000;
const SIZE = 50;
/** Requests of a row that are listed one by one. */
const LISTED = 20;

const OUTCOMES = {
  committed: ["good", "stored before", "The log has the batch, from an earlier request. Do not write it again."],
  absent: ["warn", "not stored", "The log does not have the batch, and never will have it under this epoch. The new holder may write it."],
  unknown: ["", "unknown", "The partition can prove neither. Read the log before anyone writes the batch again."],
};

/** What to do next, by code and reason; the page of problems says more. */
const NEXT = {
  PRODUCER_FENCED: "Stop this writer: another one holds the slot. Start it again as a standby, with acquire, if it should write once more.",
  PRODUCER_BUSY: "Another writer holds the slot alone. Wait in line (WaitForExclusive), or take over (ExclusiveWithFencing).",
  FENCING_TOKEN_REQUIRED: "This topic takes no write without a token: acquire the partition first.",
  INVALID_FENCING_TOKEN: "The token is newer than anything that the partition has seen: it belongs to another cluster or topic.",
  INVALID_PRODUCER_EPOCH: "This producer was fenced, or a newer instance of it has started. Stop the older one.",
  OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch before this one is missing. The producer has to send again from the number that was expected.",
  UNKNOWN_PRODUCER_ID: "The partition has forgotten this producer. It needs a new id.",
  INVALID_PRODUCER_ID_MAPPING: "The cluster does not know this producer any more. It needs a new id.",
  NOT_OWNER: "Another member owns the resource now. Stop, and join the group again.",
  TOPIC_SEALED: "The topic takes no more records, for ever. Write to another one.",
  PERMISSION_DENIED: "The principal lacks a right, or the token is another principal's.",
};

const nextStep = (write) => NEXT[write.code] || "The page of problems says what this refusal means.";

export const outcomeOf = (write) => write.outcome && OUTCOMES[write.outcome.state];

/** Who wrote, as far as the partition remembers. */
export function writerOf(write) {
  if (write.producer_name) return visible(write.producer_name);
  if (write.grant) return `grant ${write.grant}`;
  return write.producer_id === null ? "a writer without a token" : `producer ${write.producer_id}`;
}

/** A zombie that writes on is one row, not a thousand: same partition, grant, producer, refusal and outcome. */
export function together(writes) {
  const rows = new Map();
  for (const write of writes) {
    const key = [write.topic, write.partition, write.grant, write.producer_id, write.code, write.reason, write.current_epoch, write.outcome?.state].join(" ");
    if (!rows.has(key)) rows.set(key, { key, latest: write, writes: [] });
    rows.get(key).writes.push(write);
  }
  return [...rows.values()];
}

export function RefusedWrites({ query }) {
  const refused = useGet("/v1/refused_writes", { n: MOST, everywhere: "true", topic: query.topic, partition: query.partition });
  const [open, setOpen] = useState(null);
  const find = (query.find || "").toLowerCase();
  const first = Number(query.first || 0);
  const fits = (write) =>
    [`${write.topic}/${write.partition}`, write.code, write.reason, write.grant, write.producer_name, write.client_id, write.holder?.producer_name, String(write.producer_id)].some((text) =>
      text?.toLowerCase().includes(find),
    );
  return html`<${Page} title="Refused writes" note="Since the nodes were started, at most 1,000 of each. A refusal is a committed fact: no failover turns it into a stored batch.">
    <div class="filters">
      <${Search} label="Filter" placeholder="Partition, writer, holder, code, reason, grant" value=${query.find || ""} onInput=${(text) => change({ find: text, first: "" })} />
      ${query.topic && html`<${Chip}>${query.topic}${query.partition ? `/${query.partition}` : ""}<//><a href=${link(["refused"])}>All partitions</a>`}
    </div>
    <${Answer} of=${refused}>
      ${(answer) => {
        const found = together(answer.refused_writes.filter(fits));
        return html`
          ${answer.missing?.length > 0 && html`<div class="banner bad">Without those of ${answer.missing.join(", ")}, which ${answer.missing.length === 1 ? "does" : "do"} not answer.</div>`}
          <${Card} flush>
            ${found.length === 0 && html`<${Empty} title=${find || query.topic ? "No refused write is like this" : "No write was refused"}>${!find && "When a writer that was replaced writes on, it is listed here, with proof of what became of its batch."}<//>`}
            ${found.length > 0 && html`<p class="refused-heads" aria-hidden="true"><span>Latest</span><span>Who wrote</span><span>Where</span><span>Why it was refused</span><span>The batch</span></p>`}
            <ol class="records refused" aria-label="Refused writes">
              ${found.slice(first, first + SIZE).map((row) => html`<${Row} key=${row.key} row=${row} isOpen=${open === row.key} onToggle=${() => setOpen(open === row.key ? null : row.key)} />`)}
            </ol>
            <${Pager} first=${first} size=${SIZE} total=${found.length} onMove=${(to) => change({ first: to || "" })} />
          <//>`;
      }}
    <//>
  <//>`;
}

/** Why, in words: who held the slot then, and under which epochs. */
function why(write) {
  if (write.holder && write.fence_epoch !== null) return html`<b>${visible(write.holder.producer_name)}</b> held epoch ${write.current_epoch}; it wrote with ${write.fence_epoch}`;
  if (write.fence_epoch !== null && write.current_epoch !== null) return `epoch ${write.current_epoch} was in force; it wrote with ${write.fence_epoch}`;
  return write.fence_epoch === null ? "it had no token" : `it wrote with epoch ${write.fence_epoch}`;
}

function Row({ row, isOpen, onToggle }) {
  const write = row.latest;
  const outcome = outcomeOf(write);
  return html`<li>
    <button class="record" aria-expanded=${isOpen} onClick=${onToggle}>
      <span class="at">${moment(write.at_ms)}</span>
      <span class="who"><b>${writerOf(write)}</b>${row.writes.length > 1 && html` <${Chip} kind="bad">${count(row.writes.length)} writes<//>`}<span class="soft line">${visible(write.client_id) || ""}</span></span>
      <span class="place">${write.topic}/${write.partition}</span>
      <span class="why">${why(write)}<span class="soft line code">${write.code}${write.reason ? `, ${write.reason.replaceAll("_", " ")}` : ""}</span></span>
      <span class="outcome">${outcome && html`<${Chip} kind=${outcome[0]}>${outcome[1]}<//>`}</span>
    </button>
    ${isOpen && html`<${Detail} row=${row} />`}
  </li>`;
}

function Detail({ row }) {
  const write = row.latest;
  const outcome = outcomeOf(write);
  const stored = write.outcome && write.outcome.base_offset !== null ? ` Offsets ${count(write.outcome.base_offset)} to ${count(write.outcome.last_offset)}.` : "";
  return html`<div class="record-body">
    <p class="next"><b>What to do next.</b> ${nextStep(write)} <a href=${`/docs/problems#${write.code}`}>${write.code}</a></p>
    ${outcome && html`<p><b>The batch: ${outcome[1]}.</b> ${outcome[2]}${stored}</p>`}
    <${Facts} facts=${[
      ["Partition", html`<a href=${link(["topics", write.topic, write.partition])}>${write.topic}/${write.partition}</a>`],
      ["Written by", `${writerOf(write)}${write.client_id ? ` of ${visible(write.client_id)}` : ""}`],
      ["Its grant", html`<span class="mono">${write.grant ?? "none"}</span>`],
      ["Its epoch", write.fence_epoch ?? "none"],
      ["Epoch in force", write.current_epoch],
      ["Holder then", write.holder ? visible(`${write.holder.producer_name}${write.holder.client_id ? ` of ${write.holder.client_id}` : ""}`) : "none"],
    ]} />
    <table class="requests">
      <thead><tr><th scope="col">At</th><th scope="col">Producer, epoch, sequence</th><th scope="col">Request</th></tr></thead>
      <tbody>${row.writes.slice(0, LISTED).map((each) => html`<tr>
        <td>${exact(each.at_ms)}</td><td>${each.producer_id ?? "–"}, ${each.producer_epoch ?? "–"}, ${each.sequence ?? "–"}</td><td class="mono">${each.request}</td>
      </tr>`)}</tbody>
    </table>
    ${row.writes.length > LISTED && html`<p class="soft">The latest ${LISTED} of ${plural(row.writes.length, "request")}.</p>`}
  </div>`;
}
