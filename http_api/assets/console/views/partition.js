// A partition: who holds its slot, who held it, and what the log has.

import { html, useState } from "../vendor/preact.js";
import { ask, path } from "../parts/api.js";
import { began, count, ended, plural, span } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { link } from "../parts/router.js";
import { onWallClock, Timeline, useNow } from "../parts/timeline.js";
import { Answer, Blast, Card, Chip, Dialog, Empty, Facts, Field, Page, Refused, Table, Tabs, When } from "../parts/ui.js";
import { Log } from "./log.js";
import { Evict } from "./topic.js";

const TABS = [["slot", "Slot"], ["line", "Waiting in line"], ["producers", "Producers"], ["log", "Log"]];
const LINE_MAX = 200;
const PRODUCERS_MAX = 200;
const REFUSED_MAX = 1000;

export function Partition({ topic, partition, query }) {
  const base = path`/v1/topics/${topic}`;
  const seen = useGet(`${base}/partitions`, { first: partition, n: 1 });
  const [opened, open] = useState("");
  const tab = query.tab || TABS[0][0];
  const here = seen.data?.partitions[0];
  const acts = here && html`
    ${may("acquire", "topic", topic) && may("produce", "topic", topic) && html`<a class="button quiet" href=${link(["drill"], { topic, partition })}>Fence drill</a>`}
    ${may("trim", "topic", topic) && html`<button onClick=${() => open("trim")}>Trim</button>`}
    ${may("evict", "topic", topic) && html`<button onClick=${() => open("evict")}>Evict the writer</button>`}`;
  const title = `${topic}/${partition}`;
  if (seen.data && !here) {
    return html`<${Page} title=${title} crumbs=${[["Topics", ["topics"]], [topic, ["topics", topic]]]}>
      <${Empty} title="There is no such partition">The topic has ${plural(seen.data.total, "partition")}, numbered from 0.<//>
    <//>`;
  }
  return html`<${Page} title=${title} crumbs=${[["Topics", ["topics"]], [topic, ["topics", topic]]]} acts=${acts}>
    ${seen.error && !here && html`<${Refused} error=${seen.error} />`}
    ${here && html`<${Pen} partition=${here} base=${`${base}/partitions/${partition}`} />`}
    <${Tabs} tabs=${TABS} now=${tab} parts=${["topics", topic, partition]} label="Parts of the partition" />
    ${tab === "slot" && html`<${Slot} topic=${topic} partition=${partition} />`}
    ${tab === "line" && html`<${Line} topic=${topic} partition=${partition} />`}
    ${tab === "producers" && html`<${Known} topic=${topic} partition=${partition} />`}
    ${tab === "log" && html`<${Log} topic=${topic} partition=${partition} query=${query} />`}
    ${opened === "evict" && html`<${Evict} topic=${seen.data} partitions=${[partition]} onClose=${() => open("")} />`}
    ${opened === "trim" && html`<${Trim} topic=${seen.data} partition=${partition} base=${`${base}/partitions/${partition}`} onClose=${() => open("")} />`}
  <//>`;
}

/** The holder, large: the one thing that nobody else can show. */
function Pen({ partition, base }) {
  const now = useNow();
  const offsets = useGet(`${base}/offsets`, { at: "latest" });
  const { holder } = partition;
  const length = offsets.data ? offsets.data.log_end - offsets.data.log_start : null;
  return html`<div class="pen-row">
    <div class=${`pen ${holder ? "held" : ""}`}>
      <span class="pen-label">Holds the pen</span>
      <p class="pen-name">${holder ? holder.producer_name : partition.slot_mode === "Shared" ? "Shared writers" : partition.topic_epoch === null ? "Not known" : "Nobody"}</p>
      <p class="soft">${holder ? `${holder.client_id ? `${holder.client_id}, ` : ""}${holder.mode}` : partition.slot_mode === "Shared" ? "Several writers beside each other, numbered each by its producer" : "The slot is free: the next writer that acquires it gets it"}</p>
    </div>
    <div class="figures">
      <div><b>${partition.topic_epoch ?? "–"}</b><span>epoch</span></div>
      <div><b>${holder?.since_unix_ms ? span(Math.max(0, now - holder.since_unix_ms)) : "–"}</b><span>held for</span></div>
      <div><b>${partition.leader_node || html`<${Chip} kind="bad">none<//>`}</b><span>leader, term ${partition.leader_term}</span></div>
      <div><b class="chips">${partition.replicas.map((node) => html`<${Chip} kind=${node === partition.leader_node ? "accent" : ""}>${node}<//>`)}</b><span>replicas</span></div>
      <div><b>${count(length)}</b><span>records, ${offsets.data ? `${count(offsets.data.log_start)} to ${count(offsets.data.log_end)}` : "–"}</span></div>
    </div>
  </div>`;
}

function Slot({ topic, partition }) {
  const now = useNow();
  const fences = useGet(path`/v1/topics/${topic}/partitions/${partition}/fences`);
  const refused = useGet("/v1/refused_writes", { n: REFUSED_MAX, everywhere: "true", topic, partition });
  const mine = refused.data?.refused_writes || [];
  return html`<${Answer} of=${fences}>
    ${({ fences: tenures }) =>
      tenures.length === 0
        ? html`<${Card} title="Timeline"><${Empty} title="No writer has held this slot yet">Acquire it with producer.exclusive(…) in Python, or POST /v1/topics/${topic}/grants. Plain appends need no slot, unless the topic requires a token.<//><//>`
        : html`
            <${Card} title="Timeline">
              <${Timeline} fences=${tenures} refused=${mine} now=${now} />
            <//>
            <${History} tenures=${tenures} now=${now} />
          `}
  <//>`;
}

function History({ tenures, now }) {
  const rows = onWallClock(tenures, now);
  return html`<${Card} title="History" side=${plural(tenures.length, "tenure")} flush>
    <${Table} label="Tenures" heads=${[{ text: "Epoch", end: true }, "Writer", "Client", "Mode", "Began", "How", { text: "Held", end: true }, "Ended", { text: "Refused after", end: true }]}
      rows=${rows.map((each) => ({
        key: `${each.grant}/${each.epoch}`,
        mark: each.isNow ? "current" : "",
        cells: [
          each.epoch,
          html`<b>${each.producer_name}</b>`,
          each.client_id || "–",
          each.mode,
          html`<${When} at=${each.from} />`,
          began(each.operation),
          span(each.until - each.from),
          each.isNow ? html`<${Chip} kind="good">holds it now<//>` : ended(each.end),
          each.refused ? html`<b class="bad-text">${count(each.refused)}</b>` : html`<span class="soft">0</span>`,
        ],
      }))} />
  <//>`;
}

/** Who gets the slot next. */
function Line({ topic, partition }) {
  const tickets = useGet(path`/v1/topics/${topic}/tickets`, { partition, n: LINE_MAX });
  return html`<${Card} flush>
    <${Answer} of=${tickets}>
      ${(answer) => html`<${Table} label="Waiting in line" heads=${[{ text: "Place", end: true }, "Writer", "Client", { text: "Partitions", end: true }, { text: "Leaves the line in", end: true }]}
        rows=${answer.tickets.map((each, place) => ({
          key: place,
          cells: [place + 1, html`<b>${each.producer_name}</b>`, each.client_id, each.partitions, each.expires_in_ms === null ? html`<span class="soft">when its session ends</span>` : span(each.expires_in_ms)],
        }))}
        empty=${html`<${Empty} title="Nobody waits">A writer that acquires with WaitForExclusive stands here, and takes over when its turn comes.<//>`} />`}
    <//>
  <//>`;
}

function Known({ topic, partition }) {
  const known = useGet(path`/v1/topics/${topic}/partitions/${partition}/producers`, { n: PRODUCERS_MAX });
  const named = useGet("/v1/producers", { n: 1000, internal: "true" });
  const nameOf = (id) => named.data?.producers.find((each) => each.producer_id === id)?.name;
  return html`<${Card} flush>
    <${Answer} of=${known}>
      ${(answer) => html`<${Table} label="Producers" heads=${["Producer", { text: "Id", end: true }, { text: "Epoch", end: true }, { text: "Last sequence", end: true }, { text: "Last offset", end: true }, "Last batch"]}
        rows=${answer.producers.map((each) => ({
          key: each.producer_id,
          cells: [
            html`<a class="strong" href=${link(["producers", nameOf(each.producer_id) || each.producer_id])}>${nameOf(each.producer_id) || html`<span class="soft">without a name</span>`}</a>`,
            each.producer_id,
            each.producer_epoch,
            each.last_seq < 0 ? "none" : count(each.last_seq),
            count(each.last_offset),
            html`<${When} at=${each.last_ms} />`,
          ],
        }))}
        empty=${html`<${Empty} title="No producer with an id has written here">Batches without a producer's id and sequence number are stored, too; a repeated one is then stored twice.<//>`} />
        ${answer.total > answer.producers.length && html`<p class="log-note">The ${count(answer.producers.length)} that wrote last, of ${count(answer.total)}.</p>`}`}
    <//>
  <//>`;
}

function Trim({ topic, partition, base, onClose }) {
  const offsets = useGet(`${base}/offsets`, { at: "latest" });
  const [before, setBefore] = useState("");
  const { log_start: start = 0, log_end: end = 0 } = offsets.data || {};
  const dropped = before === "" ? 0 : Math.max(0, Math.min(Number(before), end) - start);
  const trim = async () => {
    await ask("POST", `${base}/trim?topic_id=${topic.topic_id}`, { body: { before: Number(before) } });
    readAgain();
  };
  return html`<${Dialog} title=${`Trim ${topic.name}/${partition}`} act="Drop them for good" kind="danger" onDo=${trim} onClose=${onClose}>
    <${Field} label="Drop records before offset" hint=${`The log goes from ${count(start)} to ${count(end)}`}>
      <input type="number" autofocus required min=${start} max=${end} value=${before} onInput=${(event) => setBefore(event.target.value)} />
    <//>
    <${Blast}><p>${plural(dropped, "record")} of ${count(end - start)}, on all ${topic.replication_factor} replicas. Readers that are behind get OFFSET_OUT_OF_RANGE.</p>
      ${topic.config.require_fence && html`<p>This topic requires a fencing token, so the node refuses a trim from here: the holder of the slot may trim.</p>`}<//>
  <//>`;
}
