// Reports of chaos runs and audits, opened from disk. The page reads the files itself: they go to no node.

import { html, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Chart } from "../parts/chart.js";
import { count, plural, span } from "../parts/format.js";
import { pageOf } from "../parts/report_page.js";
import { historyOf, Summary } from "../parts/report_files.js";
import { Card, Empty, Facts, Page, Table } from "../parts/ui.js";

const TEXT_MAX = 64 * 1024 * 1024;
/** A history is read to its end, line by line; a day of chaos has less. */
const HISTORY_MAX = 2 * 1024 ** 3;
const STRIKES_SHOWN = 200;

/** What a file is, by its content: { name, kind, … }. Throws an Error with a sentence. */
async function opened(file, tell) {
  const name = file.webkitRelativePath || file.name;
  if (/\.(parquet|arrows?)$/.test(file.name)) throw new Error(`${file.name} is a table for other programs. Open report.html, run.json or history.jsonl beside it.`);
  if (/\.jsonl$/.test(file.name)) {
    if (file.size > HISTORY_MAX) throw new Error(`${file.name} is larger than 2 GiB. Read it with stockade pipeline audit.`);
    return { name, kind: "history", history: await historyOf(file, (share) => tell(`Reading ${file.name}: ${Math.floor(share * 100)} %`)) };
  }
  if (file.size > TEXT_MAX) throw new Error(`${file.name} is larger than 64 MiB: no report of Stockade is.`);
  const text = await file.text();
  if (/\.html?$/.test(file.name) || text.trimStart().startsWith("<")) return { name, kind: "page", page: pageOf(text) };
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error(`${file.name} is neither HTML nor JSON.`);
  }
  if (!Array.isArray(found.verdicts)) throw new Error(`${file.name} has no verdicts: it is not the run.json of a chaos run.`);
  return { name, kind: "run", run: found };
}

export function Reports() {
  const [seen, setSeen] = useState([]);
  const [words, tell] = useState("");
  const [faults, setFaults] = useState([]);
  const input = useRef(null);
  const take = async (files) => {
    const [found, wrong] = [[], []];
    for (const file of files) {
      tell(`Reading ${file.name}`);
      try {
        found.push(await opened(file, tell));
      } catch (error) {
        wrong.push(error.message);
      }
    }
    tell("");
    setFaults(wrong);
    if (found.length) setSeen(found);
  };
  const drop = (event) => {
    event.preventDefault();
    take([...event.dataTransfer.files]);
  };
  const acts = html`<button class="primary" onClick=${() => input.current.click()}>Open files</button>`;
  return html`<${Page} title="Reports" note="Chaos runs and audits, from your disk. The page reads the files; nothing is uploaded." acts=${acts}>
    <div onDragOver=${(event) => event.preventDefault()} onDrop=${drop} class="drop">
      <input ref=${input} class="unseen" type="file" multiple accept=".html,.htm,.json,.jsonl" aria-label="Files of a report" tabindex="-1"
        onChange=${(event) => { take([...event.target.files]); event.target.value = ""; }} />
      ${faults.map((fault) => html`<div class="banner bad" role="alert">${fault}</div>`)}
      ${words && html`<p class="soft" role="status">${words}</p>`}
      ${seen.length === 0 && html`<${Card}><${Empty} title="Open a report">
        <p>Of <code>stockade chaos run</code>: <code>report.html</code>, <code>run.json</code> and <code>history.jsonl</code> of its folder. Of an audit: the page that <code>stockade pipeline audit --html</code> wrote. Choose them, or drop them here.</p>
      <//><//>`}
      ${seen.map((each) => html`<${One} key=${each.name} seen=${each} />`)}
    </div>
  <//>`;
}

function One({ seen }) {
  if (seen.kind === "page") return html`<${Card} title=${seen.name}><${Framed} page=${seen.page} /><//>`;
  if (seen.kind === "run") return html`<${Summary} name=${seen.name} run=${seen.run} />`;
  return html`<${History} name=${seen.name} history=${seen.history} />`;
}

/** A page that a tool wrote, with its own styles, apart from those of the console; no script in it runs. */
function Framed({ page }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const root = box.current.shadowRoot || box.current.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(page.css);
    root.adoptedStyleSheets = [sheet];
    root.replaceChildren(page.body());
  }, [page]);
  return html`<div ref=${box} class="framed"></div>`;
}

function History({ name, history }) {
  const { points, ends, strikes, seconds, skipped } = history;
  const lines = [{ name: "ok", color: "--good", fill: "--good-soft" }, { name: "fail", color: "--warn" }, { name: "info", color: "--bad" }];
  return html`<${Card} title=${name} side=${`${plural(ends.invoke, "operation")} in ${span(seconds * 1000)}`}>
    <${Facts} facts=${[
      ["Acknowledged", html`<span class="good-text">${count(ends.ok)}</span>`],
      ["Refused, without effect", html`<span class="warn-text">${count(ends.fail)}</span>`],
      ["Outcome unknown", html`<span class="bad-text">${count(ends.info)}</span>`],
      ["Faults that struck", count(strikes.length)],
      skipped ? ["Lines that are no events", count(skipped)] : null,
    ]} />
    <${Chart} points=${points} lines=${lines} format=${count} isPast words=${`Operations a second over the run: ${count(ends.ok)} acknowledged, ${count(ends.fail)} refused, ${count(ends.info)} unknown`} />
    ${strikes.length > 0 && html`<${Table} label="Faults" heads=${[{ text: "At", end: true }, "Fault", "What"]}
      rows=${strikes.slice(0, STRIKES_SHOWN).map((each, place) => ({ key: place, cells: [span(each.at * 1000), html`<b>${each.fault}</b>`, each.what] }))} />`}
    ${strikes.length > STRIKES_SHOWN && html`<p class="soft">The first ${STRIKES_SHOWN} of ${count(strikes.length)}.</p>`}
  <//>`;
}
