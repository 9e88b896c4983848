// The files in the folder of a chaos run: run.json with its verdicts, and history.jsonl with its events.

import { html } from "../vendor/preact.js";
import { count, plural, span } from "./format.js";
import { Card, Chip, Facts, Table } from "./ui.js";

const ENDS = ["ok", "fail", "info"];
const NEMESIS = "nemesis";
/** Points of the line over the run. */
const POINTS_MAX = 600;

/** Events of a history: how many operations ended how, in each second, and the faults. `tell` gets the share that is read. */
export async function historyOf(file, tell) {
  const found = { ends: { invoke: 0, ok: 0, fail: 0, info: 0 }, bySecond: new Map(), strikes: [], skipped: 0, start: null, end: 0 };
  const lines = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let read = 0;
  for (;;) {
    const { done, value } = await lines.read();
    if (done) break;
    read += value.length;
    tell(Math.min(1, read / file.size));
    const pieces = (rest + value).split("\n");
    rest = pieces.pop();
    for (const piece of pieces) take(found, piece);
  }
  take(found, rest);
  if (found.start === null) throw new Error(`${file.name} has no events: it is not the history of a chaos run.`);
  const seconds = Math.max(1, Math.ceil((found.end - found.start) / 1e9));
  return { ...found, seconds, points: pointsOf(found, seconds) };
}

function take(found, line) {
  if (!line.trim()) return;
  let event;
  try {
    event = JSON.parse(line);
  } catch {
    found.skipped += 1;
    return;
  }
  if (!event || typeof event.t_mono_ns !== "number") {
    found.skipped += 1;
    return;
  }
  found.start ??= event.t_mono_ns;
  found.end = Math.max(found.end, event.t_mono_ns);
  const at = Math.floor((event.t_mono_ns - found.start) / 1e9);
  if (event.process === NEMESIS || (event.type === "info" && event.of === undefined)) {
    if (event.error && event.f !== "skip" && event.f !== "heal") found.strikes.push({ at: (event.t_mono_ns - found.start) / 1e9, fault: event.value || event.f, what: event.error });
    return;
  }
  if (!(event.type in found.ends)) return;
  found.ends[event.type] += 1;
  if (event.type === "invoke") return;
  if (!found.bySecond.has(at)) found.bySecond.set(at, { ok: 0, fail: 0, info: 0 });
  found.bySecond.get(at)[event.type] += 1;
}

function pointsOf({ bySecond }, seconds) {
  const width = Math.ceil(seconds / POINTS_MAX);
  return Array.from({ length: Math.ceil(seconds / width) }, (_, place) => {
    const sums = { at: place * width, ok: 0, fail: 0, info: 0 };
    for (let second = place * width; second < (place + 1) * width; second++) {
      for (const end of ENDS) sums[end] += (bySecond.get(second)?.[end] || 0) / width;
    }
    return sums;
  });
}

/** run.json: the verdict first. */
export function Summary({ name, run }) {
  const violations = run.verdicts.reduce((sum, each) => sum + each.violations, 0);
  const checkers = [...run.verdicts].sort((one, other) => other.violations - one.violations);
  const { options = {} } = run;
  return html`
    <${Card} title=${name} side=${run.setups?.join(", ")}>
      <p class=${`verdict ${violations ? "bad" : "good"}`}>${violations ? `${plural(violations, "violation")}: ${checkers.filter((each) => each.violations).map((each) => `${each.checker} (${count(each.violations)})`).join(", ")}.` : `No violation in ${plural(run.operations ?? 0, "operation")} by ${plural(run.verdicts.length, "checker")}.`}</p>
      <${Facts} facts=${[
        ["Length", span((run.seconds ?? 0) * 1000)],
        ["Nodes", count(run.nodes)],
        ["Records compared", count(run.records)],
        ["Rounds", count(run.rounds?.length)],
        ["First seed", options.seed ?? "–"],
        ["Workloads", options.workloads?.join(", ")],
        ["Faults", options.faults?.join(", ") || "none"],
      ]} />
    <//>
    <${Card} title="Checkers" flush>
      <${Table} label="Checkers" heads=${["Verdict", "Checker", { text: "Claim", wrap: true }, { text: "Checked", end: true }, { text: "Violations", end: true }]}
        rows=${checkers.map((each) => ({
          key: each.checker,
          cells: [
            each.violations ? html`<${Chip} kind="bad">violated<//>` : each.checked ? html`<${Chip} kind="good">holds<//>` : html`<${Chip}>nothing to check<//>`,
            html`<b>${each.checker}</b>`,
            each.claim,
            count(each.checked),
            each.violations ? html`<b class="bad-text">${count(each.violations)}</b>` : "0",
          ],
        }))} />
    <//>
    ${checkers.filter((each) => each.examples?.length).map((each) => html`<${Card} title=${`Examples of ${each.checker}`}><ul class="examples">${each.examples.map((example) => html`<li>${example}</li>`)}</ul><//>`)}`;
}
