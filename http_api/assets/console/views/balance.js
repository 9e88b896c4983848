// The plan of balance: what would move, why, and how much that copies; and what the cluster does of it by itself.

import { html, useState } from "../vendor/preact.js";
import { ask } from "../parts/api.js";
import { bytes, count, plural } from "../parts/format.js";
import { readAgain, useGet } from "../parts/live.js";
import { Order } from "../parts/order.js";
import { balancePlan } from "../parts/plans.js";
import { may } from "../parts/rights.js";
import { link } from "../parts/router.js";
import { Answer, Card, Chip, Empty, Facts, Table } from "../parts/ui.js";

/** A plan is made of reports of all nodes: it is asked for less often than what this node knows itself. */
const EVERY_MS = 15_000;
/** Feature level from which on there are plans. */
const LEVEL = 2;
const ROWS_MAX = 100;
const MODES = {
  on: "leaders go home, replicas move",
  leaders: "leaders go home, replicas stay",
  off: "nothing by itself",
};
const WHY = {
  disk: "its disk is full",
  zone: "two replicas in one zone",
  spread: "it holds more than others",
  home: "homes of leaders are spread",
};
const NODES = {
  leaving: "being removed",
  announced: "never came",
  away: "no answer",
  unstable: "not stable for long enough",
  slow: "slow disk",
  full: "full disk",
  version: "other software than most",
};

export function Balance({ level }) {
  if ((level || 1) < LEVEL) return html`<${Card} title="Balance"><p class="soft">Plans of balance need feature level ${LEVEL}; this cluster has ${level || 1}.</p><//>`;
  return html`<${Planned} />`;
}

function Planned() {
  const found = useGet("/v1/cluster/balance", {}, EVERY_MS);
  const [balancing, balance] = useState(false);
  const plan = found.data;
  const planned = plan ? plan.moves.length + plan.leaders.length : 0;
  const act = planned > 0 && may("admin", "cluster") && html`<button class="small" onClick=${() => balance(true)}>Balance now</button>`;
  return html`<${Card} title="Balance" side=${act || (plan?.moving ? `${plural(plan.moving, "partition")} under way` : "")} flush>
    <${Answer} of=${found}>${(seen) => html`<${Told} plan=${seen} />`}<//>
    ${balancing && html`<${Now} onClose=${() => balance(false)} />`}
  <//>`;
}

function Told({ plan }) {
  const { mode, moves_at_once, copy_bytes_per_s } = plan.settings;
  const pace = copy_bytes_per_s ? `${bytes(copy_bytes_per_s)} a second and node` : "no bound";
  const rows = [...plan.moves.map(moveRow), ...plan.leaders.map(leaderRow)];
  return html`<div class="in-flush"><${Facts} facts=${[
      ["By itself", html`<${Chip} kind=${mode === "on" ? "good" : "warn"}>${mode}<//> ${MODES[mode]}`],
      ["Bounds", `${plural(moves_at_once, "partition")} at a time, ${pace}`],
      ["To copy", bytes(plan.copied_bytes)],
      ...nodes("Begins nothing because of", plan.held || {}),
      ...nodes("Gives nothing to", Object.fromEntries(Object.entries(plan.barred).filter(([node, why]) => plan.held?.[node] !== why))),
    ]} /></div>
    <${Table} label="Plan of balance" heads=${["Partition", "From", "To", { text: "Bytes", end: true }, { text: "Why", wrap: true }]}
      rows=${rows.slice(0, ROWS_MAX)}
      empty=${html`<${Empty} title="Nothing to balance">No replica and no leader has a better place now.<//>`} />
    ${rows.length > ROWS_MAX && html`<p class="in-flush soft">And ${count(rows.length - ROWS_MAX)} more: stockade cluster balance --plan --output json has all.</p>`}`;
}

/** A fact about nodes, by the reason that they share; none if there is none. */
function nodes(head, found) {
  const byReason = new Map();
  for (const [node, why] of Object.entries(found)) byReason.set(why, [...(byReason.get(why) || []), node]);
  const told = [...byReason].map(([why, names]) => `${names.join(", ")}: ${NODES[why] || why}`);
  return told.length ? [[head, told.join("; ")]] : [];
}

function row(each, from, to, size, why) {
  const name = `${each.topic}/${each.partition}`;
  const partition = html`<a class="strong" href=${link(["topics", each.topic, each.partition])}>${name}</a>`;
  return { key: `${why} ${name}`, cells: [partition, from, to, bytes(size), why] };
}

function moveRow(move) {
  const going = move.replicas.filter((node) => !move.target.includes(node));
  const coming = move.target.filter((node) => !move.replicas.includes(node));
  const [from, to] = coming.length ? [going.join(", "), coming.join(", ")] : [move.replicas[0], move.target[0]];
  return row(move, from, to, move.copied_bytes, WHY[move.why]);
}

const leaderRow = (each) => row(each, each.leader_node, each.home, 0, "its leader goes home");

function Now({ onClose }) {
  const begin = async (plan) => {
    await ask("POST", "/v1/cluster/balance", { body: plan.conditions });
    readAgain();
  };
  return html`<${Order} title="Balance the cluster now" act="Begin all of it" look=${balancePlan} onDo=${begin} onClose=${onClose} />`;
}
