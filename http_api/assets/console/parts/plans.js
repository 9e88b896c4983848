// What an order would hit, with a digest, as `stockade … --plan` tells it: same state, same digest, so that one person
// can read it to another. The conditions of a plan go with the order, which the cluster then refuses in another state.

import { digest } from "../vendor/noble-hashes.js";
import { ask, get, path, withQuery } from "./api.js";
import { bytes, count, plural } from "./format.js";

/** Partitions asked about at the same time: a browser has six connections to a node. */
const AT_ONCE = 6;
const NAMES_MAX = 5;
/** Positions of groups that are asked for of each partition. */
const GROUPS_MAX = 100;

/** JSON with the keys of each object in order and no spaces. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${members.join(",")}}`;
}

/** { digest, lines, conditions, command } of an order that rests on `state`. `command`: what does the same in a shell. */
function planned(order, state, lines, conditions, command) {
  const found = digest(canonical([order, state]));
  return { digest: found, lines, conditions, command: `stockade ${command} --confirm ${found}` };
}

/** What `ask` answers for each item, in their order; `tell` gets how many are done. */
async function eachOf(items, ask, tell = () => {}) {
  const found = new Array(items.length);
  let next = 0;
  let done = 0;
  const worker = async () => {
    while (next < items.length) {
      const place = next++;
      found[place] = await ask(items[place]);
      tell(++done, items.length);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, worker));
  return found;
}

/**
 * The grants in force on a topic, as a plan has them: with the epoch of each partition by its number, and the one that
 * all have, or null. Of an exclusive grant its partition tells all that is needed.
 */
async function holdings(topic, options) {
  const held = new Map();
  const add = (partition, epoch, { grant, mode, producer_name, client_id }) => {
    if (!held.has(grant)) held.set(grant, { grant, mode, producer_name, client_id, epoch, epochs: {}, partitions: [] });
    const found = held.get(grant);
    found.partitions.push(partition);
    found.epochs[partition] = epoch;
    if (epoch !== found.epoch) found.epoch = null;
  };
  const asked = topic.partitions.filter((each) => !each.holder && (each.slot_mode !== null || each.topic_epoch === null));
  const shared = await eachOf(asked, (each) => get(path`/v1/topics/${topic.name}/partitions/${each.partition}/fences`, {}, options));
  const tenures = new Map(shared.map((each) => [each.partition, each.fences.filter((tenure) => tenure.until_ms === null)]));
  for (const { partition, holder, topic_epoch: epoch } of topic.partitions) {
    if (holder) add(partition, epoch, holder);
    for (const each of tenures.get(partition) || []) add(partition, each.epoch, each);
  }
  return [...held.values()].sort((one, other) => (one.grant < other.grant ? -1 : 1));
}

/** 0-3, 7: numbers of partitions, ascending, for people. */
export function ranges(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

const epochsOf = ({ epochs }) => [...new Set(Object.values(epochs))].sort((one, other) => one - other);

function writers(ending, what = "loses its grant of epoch") {
  if (!ending.length) return ["No writer holds a slot here."];
  const lines = ending.slice(0, NAMES_MAX).map((each) => `${each.producer_name} of ${each.client_id || "an unknown client"} ${what} ${ranges(epochsOf(each))} (${each.mode}, on ${each.partitions.length === 1 ? "partition" : "partitions"} ${ranges(each.partitions)}).`);
  return ending.length > NAMES_MAX ? [...lines, `And ${count(ending.length - NAMES_MAX)} more.`] : lines;
}

function losing(groups) {
  if (!groups.length) return "No group has its position in what goes.";
  const more = groups.length > NAMES_MAX ? ` and ${count(groups.length - NAMES_MAX)} more` : "";
  return `${plural(groups.length, "group")} had not read on beyond it: ${groups.slice(0, NAMES_MAX).join(", ")}${more}.`;
}

const touching = (found, partitions) => found.filter((each) => each.partitions.some((partition) => partitions.includes(partition)));

/** Of evicting the holders of these partitions; null: of all. */
export async function fencePlan(name, partitions, options) {
  const topic = await get(path`/v1/topics/${name}`, {}, options);
  const chosen = partitions ? [...partitions].sort((one, other) => one - other) : topic.partitions.map((each) => each.partition);
  const ending = touching(await holdings(topic, options), chosen);
  const state = { topic: name, topic_id: topic.topic_id, partitions: chosen, grants: ending };
  const waits = ending.length ? ["A writer that waits in line takes over at once; otherwise the slot is free."] : [];
  const lines = [`Epochs rise on ${plural(chosen.length, "partition")}; every older token is refused from then on.`, ...writers(ending), ...waits];
  const which = partitions ? ` ${chosen.map((each) => `--partition ${each}`).join(" ")}` : "";
  return { topic, ...planned(`fence ${name}`, state, lines, { if_grants: ending.map((each) => each.grant) }, `fence ${name}${which}`) };
}

export const fence = (plan, partitions, reason) =>
  ask("POST", withQuery(path`/v1/topics/${plan.topic.name}/fence`, { topic_id: plan.topic.topic_id }), {
    body: { partitions: partitions || "all", ...plan.conditions, ...(reason ? { reason } : {}) },
  });

/** Of ending a session, and all that it holds. */
export async function sessionPlan({ handle, client_id }, options) {
  const { sessions } = await get("/v1/sessions", { handle }, options);
  if (!sessions.length) throw new Error(`The session of ${client_id} has ended already.`);
  const [{ grants, resources }] = sessions;
  const held = grants.map((each) => each.grant).sort();
  const state = { handle, client_id, grants: held, resources };
  const lines = [
    `The session of ${client_id} ends, and its place in line. Its client may open another one.`,
    ...(grants.length ? grants.slice(0, NAMES_MAX).map(lost) : ["It has no grant."]),
    ...(grants.length > NAMES_MAX ? [`And ${count(grants.length - NAMES_MAX)} more.`] : []),
    `${plural(resources, "resource")} of groups ${resources === 1 ? "has" : "have"} no owner any more.`,
  ];
  const if_grants = digest(held.map((grant) => `${grant}\n`).join(""));
  return planned(`fence session ${handle}`, state, lines, { if_grants, if_resources: resources }, `sessions fence ${handle}`);
}

const lost = ({ producer_name, partitions, topic, mode, epoch }) =>
  `${producer_name} loses its grant of ${plural(partitions, "partition")} of ${topic} (${mode}${epoch === null ? "" : `, epoch ${epoch}`}); a writer that waits in line takes over at once.`;

export const fenceSession = ({ handle }, plan, reason) =>
  ask("POST", "/v1/cluster/session_fences", { body: { handle, ...plan.conditions, ...(reason ? { reason } : {}) } });

/** Of deleting a topic. `tell`: how many partitions have been looked at, of how many. */
export async function deletionPlan(name, options, tell) {
  const topic = await get(path`/v1/topics/${name}`, {}, options);
  const ending = await holdings(topic, options);
  const found = await eachOf(topic.partitions, (each) => get(path`/v1/topics/${name}/partitions/${each.partition}/contents`, { n: GROUPS_MAX }, options), tell);
  const groups = [...new Set(found.flatMap((each) => each.positions.map((position) => position.group)))].sort();
  const records = found.reduce((sum, each) => sum + each.log_end - each.log_start, 0);
  const stored = found.reduce((sum, each) => sum + each.stored_bytes, 0);
  const tiered = found.reduce((sum, each) => sum + (each.tiered_bytes || 0), 0);
  const { replication_factor, topic_id } = topic;
  const state = { topic: name, topic_id, partitions: found.length, replication_factor, is_empty: !records, grants: ending, groups };
  const lines = [
    `${plural(records, "record")} in ${plural(found.length, "partition")}, ${bytes(stored)} on each of ${plural(replication_factor, "replica")}${inStore(tiered)}, with their epochs and histories. There is no way back.`,
    ...writers(ending),
    losing(groups),
  ];
  const grants = digest(ending.map((each) => `${each.grant}\n`).join(""));
  return planned(`delete ${name}`, state, lines, { topic_id, if_grants: grants }, `topics delete ${name}`);
}

const inStore = (tiered) => (tiered ? ` and ${bytes(tiered)} in the tiered store` : "");

/** Of dropping the records of a partition below an offset. */
export async function trimPlan(name, partition, before, options) {
  const base = path`/v1/topics/${name}/partitions/${partition}`;
  const [topic, found] = await Promise.all([get(path`/v1/topics/${name}`, {}, options), get(`${base}/contents`, { n: GROUPS_MAX }, options)]);
  const ending = touching(await holdings(topic, options), [partition]);
  const epoch = topic.partitions[partition].topic_epoch;
  const dropped = Math.max(0, Math.min(before, found.log_end) - found.log_start);
  const behind = found.positions.filter((each) => each.offset < found.log_start + dropped).map((each) => each.group).sort();
  const state = { topic: name, topic_id: topic.topic_id, partition, before, epoch, log_start: found.log_start, grants: ending, groups: behind };
  const records = found.log_end - found.log_start;
  const above = Math.max(found.log_start, found.local_start || 0); // on disk are the records from there on
  const onDisk = found.log_end - above;
  const share = onDisk ? Math.floor((found.stored_bytes * Math.max(0, found.log_start + dropped - above)) / onDisk) : 0;
  const tiered = records ? Math.floor(((found.tiered_bytes || 0) * dropped) / records) : 0; // all but the last records are there
  const lines = [
    `${count(dropped)} of ${plural(records, "record")}${dropped ? `, offsets ${count(found.log_start)} to ${count(found.log_start + dropped - 1)}` : ""}, about ${bytes(share)} on each replica${inStore(tiered)}. There is no way back.`,
    ...writers(ending, "holds the slot at epoch"),
    ...(ending.some(({ mode }) => mode !== "Shared") ? ["This is refused while a writer holds the slot alone. A shorter retention drops records all the same."] : []),
    losing(behind),
  ];
  const conditions = epoch === null ? {} : { if_epoch: epoch };
  return { topic, contents: found, ...planned(`trim ${name}/${partition}`, state, lines, conditions, `topics trim ${name} --partition ${partition} --before ${before}`) };
}

/** Of removing a node. `led`: partitions that it leads now, if that is known. */
export async function removalPlan(nodeId, led, options) {
  const plan = await ask("POST", "/v1/cluster/members", { body: { action: "remove", node_id: nodeId, dry_run: true }, ...options });
  const coming = new Map();
  for (const move of plan.moves) {
    for (const node of move.target.filter((each) => !move.replicas.includes(each))) coming.set(node, (coming.get(node) || 0) + 1);
  }
  const leading = led === undefined ? "" : `, and ${plural(led, "leadership")} with them`;
  const lines = [
    `${plural(plan.moves.length, "group")} ${plan.moves.length === 1 ? "moves" : "move"} to other nodes${leading}. Their bytes are copied over the network.`,
    ...[...coming].sort().map(([node, taken]) => `${node} takes ${plural(taken, "replica")}.`),
    ...(plan.moves.some((move) => move.topic === null) ? ["The controller group moves, too."] : []),
    `When that is done, ${nodeId} is no member any more.`,
  ];
  return planned(`remove ${nodeId}`, { plan: plan.plan, node_ids: plan.node_ids }, lines, { if_plan: plan.plan }, `cluster remove ${nodeId}`);
}

/** Of beginning all that would bring the cluster into balance. */
export async function balancePlan(options) {
  const plan = await get("/v1/cluster/balance", {}, options);
  const coming = new Map();
  for (const move of plan.moves) {
    for (const node of move.target.filter((each) => !move.replicas.includes(each))) coming.set(node, (coming.get(node) || 0) + 1);
  }
  const copies = [...coming.values()].reduce((sum, taken) => sum + taken, 0);
  const reordered = plan.moves.filter((move) => move.why === "home").length;
  const lines = [
    ...(copies ? [`${plural(copies, "replica")} of ${plural(plan.moves.length - reordered, "partition")} ${copies === 1 ? "goes" : "go"} to other nodes: ${bytes(plan.copied_bytes)} are copied over the network.`] : []),
    ...[...coming].sort().map(([node, taken]) => `${node} takes ${plural(taken, "replica")}.`),
    ...(reordered ? [`${plural(reordered, "partition")} ${reordered === 1 ? "gets" : "get"} another home of the leader. That copies nothing.`] : []),
    ...(plan.leaders.length ? [`${plural(plan.leaders.length, "leader")} ${plan.leaders.length === 1 ? "goes" : "go"} home. Writers of these partitions wait for a moment.`] : []),
    ...(copies || reordered || plan.leaders.length ? [] : ["Nothing: the cluster is in balance."]),
    ...(plan.is_cut ? ["There is more to do, which the next plan has."] : []),
  ];
  return planned("balance", { plan: plan.plan }, lines, { if_plan: plan.plan }, "cluster balance");
}
