// The state of cluster and nodes, as the event stream tells it each second; and the rates that follow from it.

import { useEffect, useReducer } from "../vendor/preact.js";
import { get, send } from "./api.js";
import { connection, readOn, tell } from "./live.js";

const KEPT_S = 600;
const RETRY_MS = 2000;
/** Who may not see the cluster is not asked for often: the views read by themselves. */
const FORBIDDEN_MS = 60000;
/** A stream without an event for so long is dead, also when the connection seems to be up. */
const SILENCE_MS = 10000;

/** `latest`: { cluster, nodes, missing }; `points`: [{ at, records, bytes, refused, p50, p99, sync50, sync99 }], the oldest first. */
export const state = { latest: null, points: [] };
const watchers = new Set();
let before = null;

/** What a change of makes the page read again: takeovers, new topics, leaders, refused writes, nodes that come or go. */
const signature = ({ cluster, nodes, missing }) =>
  JSON.stringify([
    nodes.map(({ node_id: id, partitions: p, refused_writes: refused }) => [id, p, refused]),
    missing,
    cluster.controller,
    cluster.nodes,
    cluster.reassignments,
  ]);

/** The value below which `share` of the counted ones lie, in ms; null without any. */
export function quantile(upTo, counts, share) {
  const all = counts.reduce((sum, each) => sum + each, 0);
  if (!all) return null;
  let left = all * share;
  for (let place = 0; place < counts.length; place++) {
    if (counts[place] >= left && counts[place] > 0) {
      const low = place ? upTo[place - 1] : 0;
      const high = upTo[place] ?? low * 2;
      return (low + ((high - low) * left) / counts[place]) / 1000;
    }
    left -= counts[place];
  }
  return upTo.at(-1) / 1000;
}

const grown = (now, then) => (now >= then ? now - then : now);

/** Rates between two states, over the nodes that are in both. */
function between(old, young) {
  const pairs = young.nodes
    .map((node) => [old.nodes.find((each) => each.node_id === node.node_id), node])
    .filter(([then]) => then);
  if (!pairs.length) return null;
  const seconds = Math.max(...pairs.map(([then, now]) => now.at_ms - then.at_ms)) / 1000;
  if (seconds <= 0) return null;
  const sum = (name) => pairs.reduce((all, [then, now]) => all + grown(now[name], then[name]), 0) / seconds;
  const timesOf = (name) => {
    const upTo = pairs[0][1][name].up_to_us;
    const counts = upTo.concat(0).map((_, place) =>
      pairs.reduce((all, [then, now]) => all + grown(now[name].counts[place], then[name].counts[place]), 0),
    );
    return [quantile(upTo, counts, 0.5), quantile(upTo, counts, 0.99)];
  };
  const [p50, p99] = timesOf("appends");
  const [sync50, sync99] = timesOf("syncs");
  return {
    at: Date.now() / 1000,
    records: sum("appended_records"),
    bytes: sum("appended_bytes"),
    refused: sum("refused_writes"),
    p50,
    p99,
    sync50,
    sync99,
  };
}

function take(told) {
  const point = state.latest && between(state.latest, told);
  state.latest = told;
  if (point) {
    state.points = [...state.points.filter((each) => each.at > point.at - KEPT_S), point];
  }
  const now = signature(told);
  if (before !== null && before !== now) readOn();
  before = now;
  if (connection.state !== "partly") tell("live");
  watchers.forEach((watch) => watch());
}

/** Follow the stream until it ends, or is silent: then `stop` is aborted. Throws a Refusal. */
async function follow(stop, heard) {
  const answer = await send("GET", "/v1/events", { headers: { Accept: "text/event-stream" }, signal: stop.signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  connection.isStreamed = true;
  let text = "";
  for (;;) {
    heard();
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (event.startsWith("event: state\n")) take(JSON.parse(event.slice(event.indexOf("data: ") + 6)));
    }
  }
}

async function poll(signal) {
  const [cluster, states] = await Promise.all([
    get("/v1/cluster", {}, { signal }),
    get("/v1/nodes", { everywhere: "true" }, { signal }),
  ]);
  take({ cluster, nodes: states.nodes, missing: states.missing || [] });
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Follow for as long as the page is open and seen; while the stream is refused, ask instead. A browser has six
 * connections to a node, for all its tabs: one that is not looked at gives its own back.
 */
async function forEver() {
  for (;;) {
    await seen();
    const stop = new AbortController();
    let isForbidden = false;
    const leave = () => (document.hidden ? stop.abort() : undefined);
    const end = () => stop.abort();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(new Error("silence")), SILENCE_MS);
    };
    document.addEventListener("visibilitychange", leave);
    addEventListener("pagehide", end);
    try {
      heard();
      await follow(stop, heard);
    } catch (failure) {
      const error = stop.signal.aborted ? stop.signal.reason : failure;
      isForbidden = error.status === 403;
      if (error.status === 401) tell("stranger", error);
      else if (error.status === 429) await poll(stop.signal).catch(() => {});
      else if (error.name !== "AbortError" && (error.status === 0 || !error.problem)) tell("silent", error);
    }
    clearTimeout(timer);
    stop.abort();
    document.removeEventListener("visibilitychange", leave);
    removeEventListener("pagehide", end);
    connection.isStreamed = false;
    await pause(isForbidden ? FORBIDDEN_MS : RETRY_MS);
  }
}

/** Resolves when the page is looked at. */
function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(seen()), { once: true }));
}

let isFollowing = false;

/** The newest state, from the first call on followed by the page. */
export function useClusterState() {
  const [, again] = useReducer((turn) => turn + 1, 0);
  useEffect(() => {
    watchers.add(again);
    if (!isFollowing) {
      isFollowing = true;
      forEver();
    }
    return () => watchers.delete(again);
  }, []);
  return state;
}
