// Writes that were refused: whose, under which epoch, what became of the batch, and what to do next.

import { html, useState } from "../vendor/preact.js";
import { count, exact, moment, plural } from "../parts/format.js";
import { useGet } from "../parts/live.js";
import { change, link } from "../parts/router.js";
import { Answer, Card, Chip, Empty, Facts, Page, Pager, Search } from "../parts/ui.js";

const MOST = 1000;
const SIZE = 50;

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
  INVALID_PRODUCER_EPOCH: "A newer instance of this producer has started. Stop the older one.",
  OUT_OF_ORDER_SEQUENCE_NUMBER: "A batch before this one is missing. The producer has to send again from the number that was expected.",
  UNKNOWN_PRODUCER_ID: "The partition has forgotten this producer. It needs a new id.",
  INVALID_PRODUCER_ID_MAPPING: "The cluster does not know this producer any more. It needs a new id.",
  NOT_OWNER: "Another member owns the resource now. Stop, and join the group again.",
  TOPIC_SEALED: "The topic takes no more records, for ever. Write to another one.",
  PERMISSION_DENIED: "The principal lacks a right, or the token is another principal's.",
};

const nextStep = (write) => NEXT[write.code] || "The page of problems says what this refusal means.";

const keyOf = (write) => write.request;

export function RefusedWrites({ query }) {
  const refused = useGet("/v1/refused_writes", { n: MOST, everywhere: "true", topic: query.topic, partition: query.partition });
  const [open, setOpen] = useState(null);
  const find = (query.find || "").toLowerCase();
  const first = Number(query.first || 0);
  const fits = (write) =>
    [`${write.topic}/${write.partition}`, write.code, write.reason, write.grant, write.holder?.producer_name, String(write.producer_id)].some((text) =>
      text?.toLowerCase().includes(find),
    );
  return html`<${Page} title="Refused writes" note="Since the nodes were started, at most 1,000 of each. A refusal is a committed fact: no failover turns it into a stored batch.">
    <div class="filters">
      <${Search} label="Filter" placeholder="Partition, code, reason, grant, holder" value=${query.find || ""} onInput=${(text) => change({ find: text, first: "" })} />
      ${query.topic && html`<${Chip}>${query.topic}${query.partition ? `/${query.partition}` : ""}<//><a href=${link(["refused"])}>All partitions</a>`}
    </div>
    <${Answer} of=${refused}>
      ${(answer) => {
        const found = answer.refused_writes.filter(fits);
        return html`
          ${answer.missing?.length > 0 && html`<div class="banner bad">Without those of ${answer.missing.join(", ")}, which ${answer.missing.length === 1 ? "does" : "do"} not answer.</div>`}
          <${Card} flush>
            ${found.length === 0 && html`<${Empty} title=${find ? "No refused write is like this" : "No write was refused"}>${!find && "When a writer that was replaced writes on, it is listed here, with proof of what became of its batch."}<//>`}
            <ol class="records refused">
              ${found.slice(first, first + SIZE).map((write) => html`<${Row} key=${keyOf(write)} write=${write} isOpen=${open === keyOf(write)} onToggle=${() => setOpen(open === keyOf(write) ? null : keyOf(write))} />`)}
            </ol>
            <${Pager} first=${first} size=${SIZE} total=${found.length} onMove=${(to) => change({ first: to || "" })} />
          <//>`;
      }}
    <//>
  <//>`;
}

function Row({ write, isOpen, onToggle }) {
  const outcome = write.outcome && OUTCOMES[write.outcome.state];
  return html`<li>
    <button class="record" aria-expanded=${isOpen} onClick=${onToggle}>
      <span class="at">${moment(write.at_ms)}</span>
      <span class="place"><b>${write.topic}/${write.partition}</b></span>
      <span class="code">${write.code}${write.reason ? html`<span class="soft"> ${write.reason.replaceAll("_", " ")}</span>` : ""}</span>
      <span class="epochs">${write.fence_epoch === null ? html`<span class="soft">no token</span>` : `epoch ${write.fence_epoch}${write.current_epoch !== null ? ` of ${write.current_epoch}` : ""}`}</span>
      <span>${outcome && html`<${Chip} kind=${outcome[0]}>${outcome[1]}<//>`}</span>
    </button>
    ${isOpen &&
    html`<div class="record-body">
      <p class="next"><b>What to do next.</b> ${nextStep(write)} <a href=${`/docs/problems#${write.code}`}>${write.code}</a></p>
      ${outcome && html`<p><b>The batch: ${outcome[1]}.</b> ${outcome[2]}${write.outcome.base_offset !== null ? ` Offsets ${count(write.outcome.base_offset)} to ${count(write.outcome.last_offset)}.` : ""}</p>`}
      <${Facts} facts=${[
        ["At", exact(write.at_ms)],
        ["Partition", html`<a href=${link(["topics", write.topic, write.partition])}>${write.topic}/${write.partition}</a>`],
        ["Its grant", html`<span class="mono">${write.grant ?? "none"}</span>`],
        ["Its epoch", write.fence_epoch ?? "none"],
        ["Epoch in force", write.current_epoch],
        ["Holder then", write.holder ? `${write.holder.producer_name}${write.holder.client_id ? ` of ${write.holder.client_id}` : ""}` : "none"],
        ["Producer, epoch, sequence", `${write.producer_id ?? "–"}, ${write.producer_epoch ?? "–"}, ${write.sequence ?? "–"}`],
        ["Request", html`<span class="mono">${write.request}</span>`],
      ]} />
    </div>`}
  </li>`;
}
