// The console: its frame, and which view an address leads to.

import { Component, html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { getToken, setToken, tokenEnds } from "./parts/api.js";
import { moment, zone } from "./parts/format.js";
import { readAgain, useConnection, useGet } from "./parts/live.js";
import { may, setCaller } from "./parts/rights.js";
import { go, link, useAddress } from "./parts/router.js";
import { useClusterState } from "./parts/state.js";
import { Dialog, Dot, Empty, Field, Page } from "./parts/ui.js";
import { Finder } from "./parts/finder.js";
import { Cluster } from "./views/cluster.js";
import { Drill } from "./views/drill.js";
import { Groups } from "./views/groups.js";
import { Ledger } from "./views/ledger.js";
import { Overview } from "./views/overview.js";
import { Partition } from "./views/partition.js";
import { Producers } from "./views/producers.js";
import { RefusedWrites } from "./views/refused.js";
import { Reports } from "./views/reports.js";
import { Runbooks } from "./views/runbook.js";
import { Sessions } from "./views/sessions.js";
import { Settings } from "./views/settings.js";
import { Topic } from "./views/topic.js";
import { Topics } from "./views/topics.js";

/** Name in the address, name for people, view, the key that leads there after g, and the right that it needs. */
const VIEWS = [
  ["", "Overview", Overview, "o"],
  ["topics", "Topics", Topics, "t"],
  ["sessions", "Sessions", Sessions, "s", ["admin", "cluster"]],
  ["groups", "Groups", Groups, "g", ["read", "cluster"]],
  ["producers", "Producers", Producers, "p", ["read", "cluster"]],
  ["refused", "Refused writes", RefusedWrites, "r", ["read", "cluster"]],
  ["ledger", "Ledger", Ledger, "l", ["admin", "cluster"]],
  ["cluster", "Cluster", Cluster, "c"],
  ["drill", "Fence drill", Drill, "d", ["acquire", "topic"]],
  ["reports", "Reports", Reports, "e"],
  ["runbooks", "Runbooks", Runbooks, "b"],
];
/** A principal's rights may change while the page is open. */
const CALLER_MS = 15000;
const SOON_MS = 5 * 60000;
const offered = () => VIEWS.filter(([, , , , right]) => !right || may(...right));
const THEMES = { auto: "light", light: "dark", dark: "auto" };

function viewAt({ parts, query }) {
  const [first = "", topic, partition] = parts;
  if (first === "topics" && partition !== undefined) {
    return html`<${Partition} key=${parts.join("/")} topic=${topic} partition=${Number(partition)} query=${query} />`;
  }
  if (first === "topics" && topic) return html`<${Topic} key=${topic} name=${topic} query=${query} />`;
  if (first === "cluster" && topic === "settings") return html`<${Settings} key="settings" query=${query} />`;
  const found = VIEWS.find(([name]) => name === first);
  if (found) return html`<${found[2]} key=${parts.join("/")} query=${query} rest=${parts.slice(1)} />`;
  return html`<${Page} title="Nothing here">
    <${Empty} title="No view has this address" act=${html`<a class="button" href="#/">To the overview</a>`} />
  <//>`;
}

/** A view that fails says so, and leaves the rest of the page as it is; another address is another attempt. */
class Guard extends Component {
  constructor(props) {
    super(props);
    this.state = { error: null };
  }

  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    if (!error) return children;
    return html`<${Page} title="This view failed">
      <${Empty} title="A fault of the console" act=${html`<button class="primary" onClick=${() => location.reload()}>Load the page again</button>`}>
        ${String(error)}. The cluster is not affected; its commands work.
      <//>
    <//>`;
  }
}

/** Light and dark follow the system until a person says otherwise; the choice is no secret and stays in the browser. */
function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("stockade-theme") || "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("stockade-theme", theme);
  }, [theme]);
  return [theme, setTheme];
}

/** What a header of a request can carry. */
const TOKEN = /^[\x20-\x7e\x80-\xff]+$/;

function Login({ refusal }) {
  const [typed, setTyped] = useState("");
  const [isNone, setNone] = useState(false);
  const ends = tokenEnds();
  const ended = ends && ends < Date.now() ? ends : null;
  const submit = (event) => {
    event.preventDefault();
    const isToken = TOKEN.test(typed.trim());
    setNone(!isToken);
    if (!isToken) return;
    setToken(typed.trim());
    readAgain();
  };
  const told = isNone ? "This is no token: it has a character that none has, such as “…”. Copy it again from where it was made."
    : getToken() && refusal && (ended ? `Your token ended at ${moment(ended)}. Paste a new one; the page goes on where it was.` : refusal.message);
  return html`<main class="login">
    <form class="card" onSubmit=${submit}>
      <${Mark} />
      <h1>Log in to this cluster</h1>
      <p class="soft">It knows its callers by token: one of this cluster, or a JSON Web Token of your identity provider. It stays in this tab and is forgotten with it.</p>
      ${told && html`<div class="banner bad" role="alert">${told}</div>`}
      <${Field} label="Token">
        <input type="password" autocomplete="off" autofocus value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <//>
      <button class="primary" disabled=${!typed.trim()}>Log in</button>
    </form>
  </main>`;
}

const Mark = () => html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
  <path d="M4 21V7l2.5-4L9 7v14zM9.5 21V7L12 3l2.5 4v14zM15 21V7l2.5-4L20 7v14z" /><path d="M2 15h20" />
</svg>`;

const STATES = {
  live: ["good", "live"],
  partly: ["warn", "partly old"],
  starting: ["", "connecting"],
  silent: ["bad", "no answer"],
  stranger: ["bad", "logged out"],
};

function Connection() {
  const { state } = useConnection();
  const [kind, text] = STATES[state];
  return html`<span class="connection" role="status"><${Dot} kind=${kind} label=${text} />${text}</span>`;
}

/** A token of an identity provider ends by itself: soon enough that a person can fetch another one, this says so. */
function Ends() {
  const ends = tokenEnds();
  if (!ends) return null;
  const left = ends - Date.now();
  return html`<span class=${left < SOON_MS ? "warn-text" : "soft"}>${left < SOON_MS ? "Token ends" : "Token until"} ${moment(ends)}</span>`;
}

/** Single keys can be turned off (WCAG 2.1.4): a person who dictates, or whose hand slips, is led away by each. */
function useHasKeys() {
  const [hasKeys, setHasKeys] = useState(localStorage.getItem("stockade-keys") !== "off");
  useEffect(() => localStorage.setItem("stockade-keys", hasKeys ? "on" : "off"), [hasKeys]);
  return [hasKeys, setHasKeys];
}

function Keys({ hasKeys, setHasKeys, onClose }) {
  const lines = [["/", "find anything"], ...offered().map(([, text, , key]) => [`g ${key}`, text]), ["?", "this list"]];
  return html`<${Dialog} title="Keys" act="Close" onDo=${async () => {}} onClose=${onClose}>
    <dl class="keys">${lines.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
    <label class="check"><input type="checkbox" checked=${hasKeys} onChange=${() => setHasKeys(!hasKeys)} />These keys are on</label>
  <//>`;
}

function useKeys(open, hasKeys) {
  useEffect(() => {
    if (!hasKeys) return;
    let isGoing = false;
    const pressed = (event) => {
      const inField = event.target.closest?.("input, textarea, select, dialog");
      if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = isGoing && VIEWS.find(([, , , key]) => key === event.key);
      isGoing = !view && event.key === "g";
      if (view) go(view[0] ? [view[0]] : []);
      else if (event.key === "/" || event.key === "?") {
        event.preventDefault();
        open(event.key === "/" ? "finder" : "keys");
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [hasKeys]);
}

/** The consoles of the other nodes, by the addresses that this one told: the way on when it is gone. */
function Others({ cluster }) {
  const others = cluster?.nodes.filter((node) => node.node_id !== cluster.node_id && /^https?:/.test(node.url)) || [];
  if (!others.length) return null;
  return html` Look from another one: ${others.map((node, place) => html`${place > 0 && ", "}<a href=${`${node.url}/${location.hash}`}>${node.node_id} at ${node.url.replace(/^https?:\/\//, "")}</a>`)}.`;
}

function App() {
  const address = useAddress();
  const [theme, setTheme] = useTheme();
  const [opened, open] = useState("");
  const state = useConnection();
  const caller = useGet("/v1/caller", {}, CALLER_MS);
  const cluster = useGet("/v1/cluster");
  const [hasKeys, setHasKeys] = useHasKeys();
  useKeys(open, hasKeys);
  useClusterState();
  const place = address.parts.join("/");
  const shown = useRef(place);
  useEffect(() => {
    scrollTo(0, 0);
    document.querySelector(".side-bar [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
    // What had the focus has gone with its view, or is far from this one.
    if (shown.current !== place) document.getElementById("main")?.focus({ preventScroll: true });
    shown.current = place;
  }, [place, Boolean(caller.data)]);
  if (state.state === "stranger") return html`<${Login} refusal=${state.refusal} />`;
  if (!caller.data) return state.state === "silent" ? html`<main class="login"><p class="banner bad" role="alert">This node does not answer.</p></main>` : html`<main class="starting">Stockade</main>`;
  setCaller(caller.data);
  const first = address.parts[0] || "";
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <aside class="side-bar">
      <a class="brand" href="#/" aria-label="Stockade, to the overview"><${Mark} /><span>Stockade</span></a>
      <nav aria-label="Views">
        ${offered().map(([name, text]) => html`<a href=${link(name ? [name] : [])} aria-current=${name === first ? "page" : undefined}>${text}</a>`)}
      </nav>
      <div class="side-foot">
        <${Ends} />
        ${caller.data.principal && html`<span class="soft" title=${caller.data.rights.join(", ")}>${caller.data.principal}</span>`}
        <span class="soft" title="Of this browser; what is pointed at shows the time in UTC">Times: ${zone()}</span>
        <a href="/docs">API</a>
        <button class="plain" onClick=${() => open("keys")}>Keys</button>
        <button class="plain" onClick=${() => setTheme(THEMES[theme])}>Theme: ${theme}</button>
        ${getToken() && html`<button class="plain" onClick=${() => { setToken(""); location.reload(); }}>Log out</button>`}
      </div>
    </aside>
    <div class="stage">
      <header class="top-bar">
        <button class="find" onClick=${() => open("finder")}><span>Find a topic, session, group or producer</span>${hasKeys && html`<kbd>/</kbd>`}</button>
        <span class="where">${cluster.data ? html`<b>${cluster.data.cluster_id}</b><span class="soft"> seen from ${cluster.data.node_id}</span>` : ""}</span>
        <${Connection} />
      </header>
      ${state.state === "silent" &&
      html`<div class="banner bad wide" role="alert">This node does not answer. It was last heard at ${moment(state.heardAt)}, and what you see is from then; the page goes on trying.<${Others} cluster=${cluster.data} /></div>`}
      ${state.state === "partly" &&
      html`<div class="banner warn wide" role="status"><b>${state.refusal.code}</b> ${state.refusal.message}. What you see of it is from before; the page goes on trying.</div>`}
      <main id="main" tabindex="-1"><${Guard} key=${place}>${viewAt(address)}<//></main>
    </div>
    ${opened === "finder" && html`<${Finder} onClose=${() => open("")} />`}
    ${opened === "keys" && html`<${Keys} ...${{ hasKeys, setHasKeys }} onClose=${() => open("")} />`}
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
