// The cluster in a sentence, its nodes, what they do, and what needs attention.

import { html } from "../vendor/preact.js";
import { get, path } from "../parts/api.js";
import { Chart } from "../parts/chart.js";
import { began, bytes, count, plural, rate, span } from "../parts/format.js";
import { useGet, useLive } from "../parts/live.js";
import { may, seesAll } from "../parts/rights.js";
import { link } from "../parts/router.js";
import { useClusterState } from "../parts/state.js";
import { CANARY, mayPlay } from "./drill.js";
import { writerOf } from "./refused.js";
import { hasRoom, lostWith } from "./topic.js";
import { Answer, Bar, Card, Chip, Dot, Empty, Holder, Page, Table, When } from "../parts/ui.js";

const REFUSED_MAX = 1000;
const RECENT_MS = 3600e3;
/** A disk with less room than this share of it is worth a look, and with less than that, soon. */
const DISK_LOW = 0.15;
const DISK_FULL = 0.05;

/** A certificate with less time left is worth a look, and with that little, soon. */
const CERTIFICATE_MS = 14 * 86400e3;
const CERTIFICATE_SOON_MS = 3 * 86400e3;

const peersOf = (use) => (use === "http" ? "clients" : "other nodes");
const daysLeft = (at) => Math.max(0, Math.floor((at - Date.now()) / 86400e3));

/** What an operator should look at, the worst first: { kind, text, act, runbook }. */
export function attention(cluster, states, refused, topics = null) {
  const found = [...ofCluster(cluster), ...states.flatMap((state) => [...ofNode(state, cluster)]), ...ofRefused(refused), ...ofTopics(cluster, topics)];
  return [...found.filter((each) => each.kind === "bad"), ...found.filter((each) => each.kind !== "bad")];
}

function* ofCluster(cluster) {
  if (!cluster.controller.leader_node) {
    yield { kind: "bad", text: "No controller leads: no topic changes, and no writer takes over, until one does.", act: ["cluster"], runbook: "StockadeNoController" };
  }
  for (const node of cluster.nodes.filter((each) => !each.alive)) {
    yield { kind: "bad", text: `${node.node_id} is away. Partitions go on while a majority of their replicas is there.`, act: ["cluster"], runbook: "StockadeNodeDown" };
  }
  for (const node of cluster.nodes.filter((each) => each.draining)) {
    yield { kind: "warn", text: `${node.node_id} is being drained.`, act: ["cluster"] };
  }
  const versions = [...new Set(cluster.nodes.map((node) => node.version).filter(Boolean))].sort();
  if (versions.length > 1) {
    yield { kind: "warn", text: `Nodes run ${versions.join(" and ")}: an upgrade is under way.`, act: ["cluster"] };
  }
  if (cluster.reassignments?.length) {
    yield { kind: "warn", text: `${plural(cluster.reassignments.length, "partition")} on the move.`, act: ["cluster"] };
  }
}

function* ofTopics(cluster, topics) {
  if (topics?.no_majority > 0) {
    yield { kind: "bad", text: `${plural(topics.no_majority, "partition")} ${topics.no_majority === 1 ? "has no majority of its" : "have no majority of their"} replicas: no writes until nodes are back.`, act: ["topics"], runbook: "StockadeLeaderless" };
  }
  if (topics?.single > 0 && hasRoom(cluster)) {
    yield { kind: "warn", text: `${plural(topics.single, "partition")} ${topics.single === 1 ? "has" : "have"} one replica: ${lostWith(topics.single)}.`, act: ["topics"] };
  }
}

function* ofNode({ node_id: id, disk, partitions, certificates = {}, refused_certificates: refused = [], doubled_by: other }, cluster) {
  const left = disk.free_bytes / disk.total_bytes;
  const said = cluster.nodes.find((node) => node.node_id === id)?.disk;
  if (said === "low" || said === "full") {
    yield { kind: "bad", text: `The disk of ${id} is below its watermark, with ${bytes(disk.free_bytes)} left: it takes no ${said === "full" ? "appends and no copies" : "appends"}.`, act: ["cluster"], runbook: "StockadeDiskLow" };
  } else if (left < DISK_LOW) {
    yield { kind: left < DISK_FULL ? "bad" : "warn", text: `The disk of ${id} has ${bytes(disk.free_bytes)} left, ${Math.floor(left * 100)} %.`, act: ["cluster"], runbook: "StockadeDiskFilling" };
  }
  if (other) yield { kind: "bad", text: `Another process runs under the id of ${id}, at ${other}.`, act: ["cluster"], runbook: "StockadeNodeDoubled" };
  if (partitions.leaderless) yield { kind: "bad", text: `${id} knows no leader of ${plural(partitions.leaderless, "partition")}: they take no writes.`, act: ["topics"], runbook: "StockadeLeaderless" };
  if (partitions.under_replicated) yield { kind: "warn", text: `${plural(partitions.under_replicated, "partition")} of ${id} ${partitions.under_replicated === 1 ? "has" : "have"} a replica that is behind.`, act: ["cluster"], runbook: "StockadeUnderReplicated" };
  for (const use of refused) {
    yield { kind: "bad", text: `${id} refuses the files of its certificate for ${peersOf(use)}, and goes on with those before until it ends.`, act: ["cluster"], runbook: "StockadeCertificateRefused" };
  }
  for (const [use, at] of Object.entries(certificates).filter(([, when]) => when - Date.now() < CERTIFICATE_MS)) {
    const kind = at - Date.now() < CERTIFICATE_SOON_MS ? "bad" : "warn";
    yield { kind, text: `The certificate of ${id} for ${peersOf(use)} has ${plural(daysLeft(at), "day")} left.`, act: ["cluster"], runbook: "StockadeCertificate" };
  }
}

function* ofRefused(refused) {
  const recent = refused.filter((write) => Date.now() - write.at_ms < RECENT_MS);
  if (!recent.length) return;
  const most = recent.length >= REFUSED_MAX ? "At least " : "";
  const names = [...new Set(recent.map(writerOf))];
  const places = [...new Set(recent.map((write) => `${write.topic}/${write.partition}`))];
  const who = names.length === 1 ? names[0] : plural(names.length, "writer");
  const where = places.length === 1 ? places[0] : plural(places.length, "partition");
  yield { kind: "warn", text: `${most}${plural(recent.length, "write")} of ${who} ${recent.length === 1 ? "was" : "were"} refused in the last hour, on ${where}.`, act: ["refused"], runbook: "StockadeZombie" };
}

/** Health in a sentence. `topics` is null while no controller says which there are. */
export function sentence(cluster, topics, found, isAll) {
  const alive = cluster.nodes.filter((node) => node.alive).length;
  const all = cluster.nodes.length;
  const nodes = alive === all ? (all === 1 ? "The only node is up" : `All ${plural(all, "node")} are up`) : `${alive} of ${plural(all, "node")} ${alive === 1 ? "is" : "are"} up`;
  const what = !topics ? "its topics cannot be listed now" : topics.total ? `${plural(topics.total, "topic")} with ${plural(topics.partitions, "partition")}` : seesAll() ? "no topic yet" : "no topic that you may see";
  const rest = found.length ? `${plural(found.length, "thing")} to look at` : isAll ? "nothing needs you" : "nothing that you may see needs you";
  return `${nodes}; ${what}; ${rest}.`;
}

export function Overview() {
  const { latest, points } = useClusterState();
  const cluster = useGet("/v1/cluster");
  const topics = useGet("/v1/topics", { n: 1 });
  const refused = useGet("/v1/refused_writes", { n: REFUSED_MAX, everywhere: "true" });
  const states = latest?.nodes || [];
  return html`<${Page} title="Overview">
    <${Answer} of=${cluster}>
      ${(seen) => {
        const found = attention(seen, states, refused.data?.refused_writes || [], topics.data);
        const isAll = may("read", "cluster");  // what nodes tell of themselves, and refused writes
        const worst = found.some((each) => each.kind === "bad") ? "bad" : found.length ? "warn" : isAll ? "good" : "";
        return html`
          <p class="sentence"><${Dot} kind=${worst} label=${worst} />${topics.data || topics.error ? sentence(seen, topics.data, found, isAll) : "…"}</p>
          ${topics.data?.total === 0 && mayPlay(CANARY) && may("admin", "topic", CANARY) && html`<${FirstRun} />`}
          <${Attention} found=${found} />
          ${points.length > 0 && html`<${Work} points=${points} />`}
          <${Nodes} cluster=${seen} states=${states} />
          ${topics.data?.total > 0 && html`<${Pens} held=${topics.data.held} />`}
        `;
      }}
    <//>
  <//>`;
}

function FirstRun() {
  return html`<section class="card first-run" aria-label="See a zombie refused">
    <h2>See a zombie refused</h2>
    <p>A writer stalls. Another one takes its place. The first one wakes up and writes on, and the log refuses it. The drill plays
      this on a topic of its own, on this cluster, in a few seconds.</p>
    <p class="acts"><a class="button" href=${link(["drill"], { start: "1" })}>Start the fence drill</a>
      <a class="button quiet" href=${link(["topics"], { create: "1" })}>Create a topic</a></p>
  </section>`;
}

function Attention({ found }) {
  if (!found.length) return null;
  return html`<${Card} title="Needs attention">
    <ul class="attention">
      ${found.map(
        (each) => html`<li><${Dot} kind=${each.kind} label=${each.kind === "bad" ? "serious" : "worth a look"} /><span>${each.text}</span>
          <span class="side"><a href=${link(each.act)} aria-label=${`Look: ${each.text}`}>Look</a>
            ${each.runbook && html`<a href=${link(["runbooks", each.runbook])} aria-label=${`What to do: ${each.text}`}>What to do</a>`}</span></li>`,
      )}
    </ul>
  <//>`;
}

const latestOf = (points, name) => points.at(-1)?.[name];

/** What all nodes do together: a figure and its line. */
function Work({ points }) {
  const last = (name) => [...points].reverse().find((each) => each[name] !== null)?.[name];
  const half = (name) => (last(name) === undefined ? "none since this page is open" : `99 % within; half within ${span(last(name))}`);
  const charts = [
    ["Records stored", rate(latestOf(points, "records")), `a second, ${bytes(latestOf(points, "bytes"))}`, [{ name: "records", color: "--accent", fill: "--accent-soft" }], rate],
    ["Append latency", span(last("p99")), half("p50"), [{ name: "p99", color: "--accent" }, { name: "p50", color: "--soft" }], span],
    ["Sync of the log", span(last("sync99")), half("sync50"), [{ name: "sync99", color: "--accent" }, { name: "sync50", color: "--soft" }], span],
    ["Writes refused", rate(latestOf(points, "refused")), "a second", [{ name: "refused", color: "--bad", fill: "--bad-soft" }], rate],
  ];
  return html`<div class="work">
    ${charts.map(
      ([title, figure, unit, lines, format]) => html`<section class="card" aria-label=${title}>
        <h2>${title}</h2>
        <p class="figure"><b>${figure}</b> <span>${unit}</span></p>
        <${Chart} points=${points} lines=${lines} format=${format} words=${`${title} over the last ten minutes; now ${figure} ${unit}`} />
      </section>`,
    )}
  </div>`;
}

function Nodes({ cluster, states }) {
  const zones = [...new Set(cluster.nodes.map((node) => node.zone))];
  return html`<${Card} title="Nodes" side=${zones.some(Boolean) && plural(zones.filter(Boolean).length, "zone")}>
    ${zones.map(
      (zone) => html`<div class="zone">
        ${zone && html`<h3>${zone}</h3>`}
        <div class="nodes">
          ${cluster.nodes
            .filter((node) => node.zone === zone)
            .map((node) => html`<${Node} key=${node.node_id} node=${node} cluster=${cluster} state=${states.find((each) => each.node_id === node.node_id)} />`)}
        </div>
      </div>`,
    )}
  <//>`;
}

function Node({ node, cluster, state }) {
  const { leader_node: controller, leader_term: term } = cluster.controller;
  const used = state && 1 - state.disk.free_bytes / state.disk.total_bytes;
  return html`<article class=${`node ${node.alive ? "" : "away"}`}>
    <header><${Dot} kind=${node.alive ? "good" : "bad"} label=${node.alive ? "up" : "away"} /><b>${node.node_id}</b>
      ${node.node_id === controller && html`<${Chip} kind="accent" title=${`leads the controller group in term ${term}`}>controller<//>`}
      ${node.draining && html`<${Chip} kind="warn">draining<//>`}
    </header>
    <p class="soft mono">${node.url.replace(/^https?:\/\//, "")}</p>
    ${state &&
    html`<dl>
      <div><dt>leads</dt><dd>${count(state.partitions.led)} of ${count(state.partitions.replicas)}</dd></div>
      <div><dt>clients</dt><dd>${count(state.connections)}</dd></div>
      <div><dt>disk left</dt><dd>${bytes(state.disk.free_bytes)}</dd></div>
    </dl>
    <${Bar} share=${used} kind=${used > 1 - DISK_LOW ? "warn" : ""} label=${`Disk of ${node.node_id} in use`} />`}
  </article>`;
}

const TOPICS_SHOWN = 12;
const HELD_SHOWN = 12;
const PARTITIONS_SHOWN = 24;

/** Partitions of a topic that have a holder. Only if the first ones are not all does a node look at each, by how grants of the topic begin. */
async function holdersOf({ name, topic_id: id, held }, signal) {
  const page = async (query) => {
    const { partitions } = await get(path`/v1/topics/${name}/partitions`, { n: PARTITIONS_SHOWN, ...query }, { signal });
    return partitions.filter((each) => each.holder).map((each) => ({ topic: name, ...each }));
  };
  const first = await page({});
  return first.length < Math.min(held, HELD_SHOWN) ? page({ find: `g-${id}-` }) : first;
}

/** The writers that hold slots now, the latest first: what only the cluster knows. */
function Pens({ held: total }) {
  const held = useLive(
    async (signal) => {
      const { topics } = await get("/v1/topics", { held: "true", n: TOPICS_SHOWN }, { signal });
      const all = await Promise.all(topics.map((topic) => holdersOf(topic, signal)));
      return all.flat();
    },
    [],
  );
  if (!held.data) return null;
  const rows = [...held.data].sort((one, other) => (other.holder.since_unix_ms || 0) - (one.holder.since_unix_ms || 0));
  return html`<${Card} title="Who may write" side=${plural(total, "slot")} flush>
    <${Table} label="Holders of slots"
      heads=${["Partition", "May write", { text: "Epoch", end: true }, "Since", "How", "Leader"]}
      rows=${rows.slice(0, HELD_SHOWN).map((each) => ({
        key: `${each.topic}/${each.partition}`,
        cells: [
          html`<a class="strong" href=${link(["topics", each.topic, each.partition])}>${each.topic}/${each.partition}</a>`,
          html`<${Holder} partition=${each} />`,
          count(each.topic_epoch),
          html`<${When} at=${each.holder.since_unix_ms} />`,
          html`<span class=${each.holder.operation === "eviction" ? "" : "soft"}>${began(each.holder.operation)}</span>`,
          each.leader_node || html`<${Chip} kind="bad">none<//>`,
        ],
      }))}
      empty=${html`<${Empty} title="No writer holds a slot">A writer that calls acquire, or producer.exclusive(…) in Python, appears here with its epoch.<//>`} />
    ${total > HELD_SHOWN && html`<p class="pager"><a href=${link(["topics"])}>All topics</a></p>`}
  <//>`;
}
