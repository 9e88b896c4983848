// The fence drill: a writer stalls, another one takes over, the first one wakes up, and the log refuses it. All of it by
// the public API, with two sessions that this page opens and closes.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { ask, get, path, Refusal } from "../parts/api.js";
import { plural } from "../parts/format.js";
import { readAgain, useLive } from "../parts/live.js";
import { may } from "../parts/rights.js";
import { change, link } from "../parts/router.js";
import { Order } from "../parts/order.js";
import { fencePlan } from "../parts/plans.js";
import { Timeline, useNow } from "../parts/timeline.js";
import { Card, Chip, Empty, Page } from "../parts/ui.js";

export const CANARY = "fence-drill";
export const mayPlay = (topic) => may("acquire", "topic", topic) && may("produce", "topic", topic);
const TTL_MS = 60000;
const STALL_MS = 2500;
const STEP_MS = 900;
const WRITES = 3;

const STEPS = [
  ["prepare", "A topic for the drill", "It takes no write without a fencing token."],
  ["alice", "Alice acquires the slot and writes", "The slot is hers, and her token carries an epoch; the log stores her records under it."],
  ["stall", "Alice stalls", "A long garbage collection, a frozen machine, a cut cable: she does not know that time goes by."],
  ["bob", "Bob takes over", "He acquires the same partition. The epoch rises, and the log knows it before Bob gets his answer."],
  ["zombie", "Alice wakes up and writes on", "She still believes that she is alone. Her batch reaches the log, and is judged there."],
  ["proof", "The log proves what became of her batch", "The certificate says whether the batch is stored, so Alice need not guess whether to write it again."],
  ["end", "The drill cleans up", "Both sessions are closed, and the slot is free."],
];

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A writer of the drill. */
class Writer {
  constructor(name, place) {
    this.name = name;
    this.base = path`/v1/topics/${place.topic}`;
    this.partition = place.partition;
    this.next = 0;
  }

  async acquire() {
    const opened = await ask("POST", "/v1/sessions", { body: { client_id: `drill-${this.name}`, ttl_ms: TTL_MS } });
    this.session = { "Stockade-Session": opened.session };
    const body = { partitions: [this.partition], mode: "ExclusiveWithFencing", producer_name: this.name };
    this.grant = await ask("POST", `${this.base}/grants`, { body, headers: this.session });
    this.producer = await ask("POST", "/v1/producers", { body: {}, headers: this.session });
  }

  write(text) {
    const headers = {
      ...this.session,
      "Stockade-Fence-Grant": this.grant.grant,
      "Stockade-Fence-Epoch": this.grant.epochs[this.partition],
      "Stockade-Producer-Id": this.producer.producer_id,
      "Stockade-Producer-Epoch": this.producer.producer_epoch,
      "Stockade-Producer-Seq": this.next,
    };
    const body = { records: [{ key: this.name, value: text }] };
    return ask("POST", `${this.base}/partitions/${this.partition}/records`, { body, headers }).then((stored) => {
      this.next += 1;
      return stored;
    });
  }

  async leave() {
    if (this.session) await ask("DELETE", "/v1/session", { headers: this.session }).catch(() => {});
  }
}

/** Play it; `tell(step, words)` as each step is done. */
async function play(place, tell) {
  const alice = new Writer("alice", place);
  const bob = new Writer("bob", place);
  try {
    if (place.topic === CANARY) {
      const there = await get(path`/v1/topics/${CANARY}`).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
      if (!there) await ask("POST", "/v1/topics", { body: { name: CANARY, partitions: 1, config: { require_fence: true } } });
    }
    tell("prepare", `${place.topic}/${place.partition} is ready.`);
    await pause(STEP_MS);
    await alice.acquire();
    for (let number = 0; number < WRITES; number++) await alice.write(`alice ${number}`);
    tell("alice", `Alice holds epoch ${alice.grant.epoch}, and has stored ${plural(WRITES, "record")}.`);
    await pause(STEP_MS);
    tell("stall", "Not a word from her.", true);
    await pause(STALL_MS);
    tell("stall", `Silent for ${STALL_MS / 1000} s.`);
    await bob.acquire();
    await bob.write("bob 0");
    tell("bob", `Bob holds epoch ${bob.grant.epoch}, and writes.`);
    await pause(STEP_MS);
    const refusal = await alice.write("alice, late").then(
      () => null,
      (error) => error,
    );
    if (!(refusal instanceof Refusal) || refusal.code !== "PRODUCER_FENCED") throw refusal || new Error("The log stored the zombie's batch.");
    const at = Date.now();
    tell("zombie", `Refused: ${refusal.code}, her epoch ${alice.grant.epoch} of ${refusal.problem.current_epoch}.`, false, { refusal, at, alice });
    await pause(STEP_MS);
    tell("proof", `The certificate: ${refusal.problem.outcome.state}. ${refusal.problem.outcome.state === "absent" ? "The batch is not in the log, and never will be under her epoch." : ""}`);
    await pause(STEP_MS);
  } finally {
    await Promise.all([alice.leave(), bob.leave()]);
  }
  tell("end", "Nothing of the drill runs any more. Its records and its history stay.");
}

export function Drill({ query }) {
  const place = { topic: query.topic || CANARY, partition: Number(query.partition || 0) };
  const [done, setDone] = useState({});
  const [running, setRunning] = useState(false);
  const [error, setError] = useState(null);
  const [asking, setAsking] = useState(false);
  const [zombie, setZombie] = useState(null);
  const isCanary = place.topic === CANARY;
  const begun = useRef(false);
  const start = async () => {
    setRunning(true);
    setDone({});
    setError(null);
    setZombie(null);
    try {
      await play(place, (step, words, isOpen = false, seen = null) => {
        setDone((before) => ({ ...before, [step]: { words, isOpen } }));
        if (seen) setZombie(seen);
        readAgain();
      });
    } catch (refusal) {
      setError(refusal);
    }
    setRunning(false);
  };
  useEffect(() => {
    if (query.start === "1" && isCanary && mayPlay(CANARY) && !begun.current) {
      begun.current = true;
      change({ start: "" });
      start();
    }
  }, []);
  const acts = mayPlay(place.topic) && html`<button class="primary" disabled=${running} onClick=${() => (isCanary ? start() : setAsking(true))}>
    ${running ? "Playing…" : done.end ? "Play it again" : "Start the drill"}
  </button>`;
  const crumbs = isCanary ? [] : [["Topics", ["topics"]], [`${place.topic}/${place.partition}`, ["topics", place.topic, place.partition]]];
  return html`<${Page} title="Fence drill" crumbs=${crumbs} acts=${acts} note=${`On ${place.topic}/${place.partition}${isCanary ? ", a topic of its own" : ""}${acts ? "" : `. To play it you need the rights acquire and produce on topic:${place.topic}`}`}>
    ${error && html`<div class="banner bad" role="alert"><b>${error.code || "Error"}</b> ${error.message}</div>`}
    <div class="drill">
      <${Card}><${Steps} done=${done} running=${running} /><//>
      <div class="drill-side">
        <${Card} title="The slot" flush=${false}><${Slot} place=${place} zombie=${zombie} isOn=${running || Boolean(done.prepare)} /><//>
        ${zombie && html`<${Verdict} zombie=${zombie} />`}
      </div>
    </div>
    ${asking && html`<${Ask} place=${place} onStart=${start} onClose=${() => setAsking(false)} />`}
  <//>`;
}

/** Before a drill on a partition in use: who is evicted. When that has changed, nothing begins. */
function Ask({ place, onStart, onClose }) {
  const name = `${place.topic}/${place.partition}`;
  const look = async (options) => {
    const plan = await fencePlan(place.topic, [place.partition], options);
    const lines = [
      "This is a partition in use, not the canary. The drill takes its slot over.",
      ...plan.lines.filter((line) => !line.startsWith("A writer that waits")),
      "It does not get the slot back by itself: it has to acquire again.",
      `${plural(WRITES + 1, "record")} of the drill stay in the log, where consumers read them.`,
    ];
    return { ...plan, lines, command: null };
  };
  const begin = async (plan) => {
    const now = await fencePlan(place.topic, [place.partition]);
    if (now.digest !== plan.digest) throw new Refusal({ code: "PLAN_CHANGED", detail: "the state has changed since this was planned" }, 412);
    onStart();
  };
  return html`<${Order} title=${`Drill on ${name}`} act="Take the slot over" confirm=${name} look=${look} onDo=${begin} onClose=${onClose} />`;
}

function Steps({ done, running }) {
  const current = running ? STEPS.find(([id]) => !done[id] || done[id].isOpen)?.[0] : null;
  return html`<ol class="steps">
    ${STEPS.map(([id, title, why], place) => {
      const state = done[id] && !done[id].isOpen ? "done" : id === current ? "current" : "";
      return html`<li class=${`${state}${id === "zombie" && done[id] ? " bad" : ""}`} aria-current=${id === current ? "step" : undefined}>
        <span class="number" aria-hidden="true">${state === "done" ? (id === "zombie" ? "✕" : "✓") : place + 1}</span>
        <div><b>${title}</b><p class="soft">${why}</p>${done[id] && html`<p class="said" role="status">${done[id].words}</p>`}</div>
      </li>`;
    })}
  </ol>`;
}

function Slot({ place, zombie, isOn }) {
  const now = useNow(isOn ? 200 : 1000);
  const fences = useLive(
    (signal) => get(path`/v1/topics/${place.topic}/partitions/${place.partition}/fences`, {}, { signal }).catch((error) => {
      if (error.status === 404) return { fences: [] };
      throw error;
    }),
    [place.topic, place.partition],
    isOn ? 500 : 0,
  );
  const tenures = (fences.data?.fences || []).filter((each) => each.since_unix_ms > now - 120e3);
  const refused = zombie
    ? [{ at_ms: zombie.at, code: zombie.refusal.code, reason: zombie.refusal.problem.reason, fence_epoch: zombie.alice.grant.epoch, grant: zombie.alice.grant.grant,
        producer_id: zombie.alice.producer.producer_id, sequence: zombie.alice.next, request: zombie.refusal.problem.instance, outcome: zombie.refusal.problem.outcome }]
    : [];
  if (!tenures.length) return html`<${Empty} title="No writer has held it yet">The bars appear here as the drill plays.<//>`;
  return html`<${Timeline} fences=${tenures} refused=${refused.filter((each) => tenures.some((tenure) => tenure.grant === each.grant))} now=${now} ranges=${false} />
    <p><a href=${link(["topics", place.topic, place.partition])}>To ${place.topic}/${place.partition}</a></p>`;
}

function Verdict({ zombie }) {
  const { problem } = zombie.refusal;
  return html`<${Card} title="What Alice was told" side=${html`<${Chip} kind="bad">${problem.status} ${problem.code}<//>`}>
    <pre tabindex="0" aria-label="Problem document">${JSON.stringify(problem, null, 2)}</pre>
  <//>`;
}
