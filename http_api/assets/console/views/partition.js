// A partition: who holds its slot, who held it, and what the log has.

import { html, useState } from "../vendor/preact.js";
import { ask, path, withQuery } from "../parts/api.js";
import { began, count, ended, plural, span, visible } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { Order } from "../parts/order.js";
import { trimPlan } from "../parts/plans.js";
import { may } from "../parts/rights.js";
import { link } from "../parts/router.js";
import { onWallClock, Timeline, useNow } from "../parts/timeline.js";
import { Answer, Card, Chip, Empty, Field, Page, Refused, Table, Tabs, When } from "../parts/ui.js";
import { mayPlay } from "./drill.js";
import { Log } from "./log.js";
import { Evict, Replicas, Single } from "./topic.js";

const TABS = [["slot", "Slot"], ["line", "Waiting in line"], ["producers", "Producers"], ["log", "Log"]];
const LINE_MAX = 200;
const TENURES_SHOWN = 20;
const PRODUCERS_MAX = 200;
const REFUSED_MAX = 1000;

export function Partition({ topic, partition, query }) {
  const base = path`/v1/topics/${topic}`;
  const seen = useGet(`${base}/partitions`, { first: partition, n: 1 });
  const line = useGet(`${base}/tickets`, { partition, n: LINE_MAX });
  const refused = useGet(may("read", "cluster") ? "/v1/refused_writes" : null, { n: REFUSED_MAX, everywhere: "true", topic, partition });
  const mine = refused.data?.refused_writes || [];
  const [opened, open] = useState("");
  const tab = query.tab || TABS[0][0];
  const here = seen.data?.partitions[0];
  const acts = here && html`
    ${mayPlay(topic) && html`<a class="button quiet" href=${link(["drill"], { topic, partition })}>Fence drill</a>`}
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
    ${here && html`<${Pen} partition=${here} line=${line.data} refused=${mine} topic=${topic} /><${Copies} partition=${here} /><${Single} name=${topic} partitions=${[here]} />`}
    <${Tabs} tabs=${TABS.map(([id, text]) => [id, id === "line" && line.data?.total ? `${text} (${count(line.data.total)})` : text])} now=${tab} parts=${["topics", topic, partition]} label="Parts of the partition" />
    ${tab === "slot" && html`<${Slot} topic=${topic} partition=${partition} refused=${mine} />`}
    ${tab === "line" && html`<${Line} tickets=${line} />`}
    ${tab === "producers" && html`<${Known} topic=${topic} partition=${partition} />`}
    ${tab === "log" && html`<${Log} topic=${topic} partition=${partition} query=${query} />`}
    ${opened === "evict" && html`<${Evict} name=${topic} partitions=${[partition]} onClose=${() => open("")} />`}
    ${opened === "trim" && html`<${Trim} topic=${seen.data} partition=${partition} base=${`${base}/partitions/${partition}`} onClose=${() => open("")} />`}
  <//>`;
}

/** Who may write, who wants to, and who was refused. */
function Pen({ partition, line, refused, topic }) {
  return html`<div class="pen-row">
    <${Holds} partition=${partition} />
    <${Wants} line=${line} place=${["topics", topic, partition.partition]} />
    <${WasRefused} refused=${refused} topic=${topic} partition=${partition.partition} />
  </div>`;
}

const SHARED = ["Shared writers", "Several writers beside each other, numbered each by its producer."];
const UNKNOWN = ["Not known", "No node that has the partition answers."];
const FREE = ["No writer", "The slot is free: the next writer that acquires it gets it."];

function Holds({ partition }) {
  const now = useNow();
  const { holder, slot_mode: mode, topic_epoch: epoch } = partition;
  const [name, words] = mode === "Shared" ? SHARED : epoch === null ? UNKNOWN : FREE;
  const since = holder?.since_unix_ms;
  return html`<section class=${`pen ${holder ? "held" : ""}`} aria-label="May write">
    <h2>May write</h2>
    <p class="pen-name">${holder ? visible(holder.producer_name) : name}</p>
    <p class="soft">${holder ? html`${holder.client_id && `${visible(holder.client_id)}; `}${began(holder.operation)}` : words}</p>
    ${holder && html`<p class="pen-fact">epoch <b>${count(epoch)}</b>${since ? html`, for <b>${span(Math.max(0, now - since))}</b>` : ""}, <span class="soft">${holder.mode}</span></p>`}
  </section>`;
}

function Wants({ line, place }) {
  const { total = 0, tickets = [] } = line || {};
  return html`<section class="pen" aria-label="Wants to write">
    <h2>Wants to write</h2>
    <p class="pen-name">${total ? visible(tickets[0].producer_name) : "No writer waits"}</p>
    <p class="soft">${total ? `${visible(tickets[0].client_id)}; first of ${count(total)} in line` : "A writer that acquires with WaitForExclusive stands in line here."}</p>
    ${total > 0 && html`<p class="pen-fact"><a href=${link(place, { tab: "line" })}>The line</a></p>`}
  </section>`;
}

function WasRefused({ refused, topic, partition }) {
  const [latest] = refused;
  if (!may("read", "cluster")) {
    return html`<section class="pen" aria-label="Was refused"><h2>Was refused</h2><p class="pen-name">Not shown</p><p class="soft">Refused writes need the right read cluster.</p></section>`;
  }
  return html`<section class=${`pen ${latest ? "refused-box" : ""}`} aria-label="Was refused">
    <h2>Was refused</h2>
    <p class="pen-name">${latest ? visible(latest.producer_name) || (latest.grant ? latest.grant : "A writer without a token") : "No write"}</p>
    <p class="soft">${latest ? html`${latest.reason ? latest.reason.replaceAll("_", " ") : latest.code}${latest.fence_epoch === null ? "" : `, with epoch ${latest.fence_epoch}`}, <${When} at=${latest.at_ms} />` : "A writer that was replaced and writes on is listed here."}</p>
    ${latest && html`<p class="pen-fact"><a href=${link(["refused"], { topic, partition })}>${refused.length >= REFUSED_MAX ? "At least " : ""}${plural(refused.length, "write")} refused</a></p>`}
  </section>`;
}

/** The log and its copies, in a line. */
function Copies({ partition }) {
  const { leader_node: leader, log_start: start, log_end: end } = partition;
  return html`<div class="figures strip">
    <div><b>${leader || html`<${Chip} kind="bad">none<//>`}</b><span>leader, term ${partition.leader_term}</span></div>
    <div><b><${Replicas} partition=${partition} /></b><span>replicas, and what one lacks</span></div>
    ${end !== null && html`<div><b>${count(end - start)}</b><span>records${end > start && `, offsets ${count(start)} to ${count(end - 1)}`}</span></div>`}
  </div>`;
}

function Slot({ topic, partition, refused }) {
  const now = useNow();
  const fences = useGet(path`/v1/topics/${topic}/partitions/${partition}/fences`);
  return html`<${Answer} of=${fences}>
    ${({ fences: tenures }) =>
      tenures.length === 0
        ? html`<${Card} title="Timeline"><${Empty} title="No writer has held this slot yet">Acquire it with producer.exclusive(…) in Python, or POST /v1/topics/${topic}/grants. Plain appends need no slot, unless the topic requires a token.<//><//>`
        : html`
            <${Card} title="Timeline">
              <${Timeline} fences=${tenures} refused=${refused} now=${now} />
            <//>
            <${History} tenures=${tenures} now=${now} />
          `}
  <//>`;
}

function History({ tenures, now }) {
  const [isWhole, setWhole] = useState(false);
  const rows = onWallClock(isWhole ? tenures : tenures.slice(0, TENURES_SHOWN), now);
  return html`<${Card} title="History" side=${plural(tenures.length, "tenure")} flush>
    <${Table} label="Tenures" heads=${[{ text: "Epoch", end: true }, "Writer", "Began", "How", { text: "Held", end: true }, "Ended", { text: "Refused after", end: true }]}
      rows=${rows.map((each) => ({
        key: `${each.grant}/${each.epoch}`,
        mark: each.isNow ? "current" : "",
        cells: [
          each.epoch,
          html`<b>${visible(each.producer_name)}</b>${each.client_id && html`<span class="soft"> of ${visible(each.client_id)}</span>`}`,
          html`<${When} at=${each.from} />`,
          html`<span title=${each.mode}>${began(each.operation)}</span>`,
          span(each.until - each.from),
          each.isNow ? html`<${Chip} kind="good">holds it now<//>` : visible(ended(each.end)),
          each.refused ? html`<b class="bad-text">${count(each.refused)}</b>` : html`<span class="soft">0</span>`,
        ],
      }))} />
    ${tenures.length > rows.length && html`<p class="pager"><button class="small" onClick=${() => setWhole(true)}>All ${count(tenures.length)}</button></p>`}
  <//>`;
}

/** Who gets the slot next. */
function Line({ tickets }) {
  return html`<${Card} flush>
    <${Answer} of=${tickets}>
      ${(answer) => html`<${Table} label="Waiting in line" heads=${[{ text: "Place", end: true }, "Writer", "Client", { text: "Partitions", end: true }, { text: "Leaves the line in", end: true }]}
        rows=${answer.tickets.map((each, place) => ({
          key: place,
          cells: [place + 1, html`<b>${visible(each.producer_name)}</b>`, visible(each.client_id), each.partitions, each.expires_in_ms === null ? html`<span class="soft">when its session ends</span>` : span(each.expires_in_ms)],
        }))}
        empty=${html`<${Empty} title="No writer waits">A writer that acquires with WaitForExclusive stands here, and takes over when its turn comes.<//>`} />`}
    <//>
  <//>`;
}

function Known({ topic, partition }) {
  const known = useGet(path`/v1/topics/${topic}/partitions/${partition}/producers`, { n: PRODUCERS_MAX });
  const named = useGet("/v1/producers", { n: 1000, internal: "true" });
  const nameOf = (id) => named.data?.producers.find((each) => each.producer_id === id)?.name;
  const hasAll = named.data && named.data.producers.length >= named.data.total;
  return html`<${Card} flush>
    <${Answer} of=${known}>
      ${(answer) => html`<${Table} label="Producers" heads=${["Producer", { text: "Id", end: true }, { text: "Epoch", end: true }, { text: "Last sequence", end: true }, { text: "Last offset", end: true }, "Last batch"]}
        rows=${answer.producers.map((each) => ({
          key: each.producer_id,
          cells: [
            html`<a class="strong" href=${link(["producers", nameOf(each.producer_id) || each.producer_id])}>${visible(nameOf(each.producer_id)) || html`<span class="soft">${hasAll ? "without a name" : `producer ${each.producer_id}`}</span>`}</a>`,
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
  const offsets = useGet(`${base}/offsets`, { at: "latest" }, 0);
  const [before, setBefore] = useState("");
  const { log_start: start = 0, log_end: end = 0 } = offsets.data || {};
  const wanted = before === "" ? start : Math.max(start, Math.min(Number(before), end));
  const trim = async (plan) => {
    await ask("POST", withQuery(`${base}/trim`, { topic_id: plan.topic.topic_id }), { body: { before: wanted, ...plan.conditions } });
    readAgain();
  };
  if (!offsets.data) return null;
  return html`<${Order} title=${`Trim ${topic.name}/${partition}`} act="Drop them for good" look=${(options) => trimPlan(topic.name, partition, wanted, options)} keys=${[wanted]} onDo=${trim} onClose=${onClose}>
    <${Field} label="Drop records before offset" hint=${`Log start ${count(start)}, log end ${count(end)}`}>
      <input type="number" autofocus required min=${start} max=${end} value=${before} onInput=${(event) => setBefore(event.target.value)} />
    <//>
    ${topic.config.require_fence && html`<p class="soft">This topic requires a fencing token, so the node refuses a trim from here. With the token of a command: <code>stockade topics trim ${topic.name} --partition ${partition} --before ${wanted} --exclusive</code></p>`}
  <//>`;
}
