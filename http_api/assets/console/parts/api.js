// Requests to the node that the page came from. The token lives in this tab alone (sessionStorage), and nowhere else.

const TOKEN = "stockade-token";

/** A refusal of the API: `problem` is the document as it came. */
export class Refusal extends Error {
  constructor(problem, status) {
    super(problem.detail || problem.title || `status ${status}`);
    this.problem = problem;
    this.code = problem.code;
    this.status = status;
  }
}

export const getToken = () => sessionStorage.getItem(TOKEN) || "";

export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

/** When a JSON Web Token expires by itself, in milliseconds since 1970; null: it is none, or never. The node judges it. */
export function tokenEnds(token = getToken()) {
  const [, claims, signature] = token.split(".");
  if (!signature) return null;
  try {
    const { exp } = JSON.parse(atob(claims.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof exp === "number" ? exp * 1000 : null;
  } catch {
    return null;
  }
}

/** `path` with what `query` has and is not empty. */
export function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** A path of encoded pieces: path`/v1/topics/${name}`. */
export const path = (texts, ...values) =>
  texts.reduce((made, text, place) => made + encodeURIComponent(values[place - 1]) + text);

const SILENT = "This node does not answer.";
/** Of an act: the node, or another one for it, may have carried it out before the connection ended. */
const UNSURE = "It may have been done, or not: look before you try again.";

/** The answer as fetch has it. Throws a Refusal. */
export async function send(method, url, { body, headers = {}, signal } = {}) {
  const all = { Accept: "application/json", ...headers };
  if (getToken()) all.Authorization = `Bearer ${getToken()}`;
  if (body !== undefined && !all["Content-Type"]) all["Content-Type"] = "application/json";
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const isAct = method !== "GET" && !body?.dry_run;
  const silent = (detail) => ({ code: "NO_ANSWER", detail: isAct ? `${detail} ${UNSURE}` : detail });
  let answer;
  try {
    answer = await fetch(url, { method, headers: all, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(silent(SILENT), 0);
  }
  if (answer.ok) return answer;
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    problem = silent(`Status ${answer.status} without a problem document.`);
  }
  throw new Refusal(problem, answer.status);
}

/** The JSON of an answer, null for an empty one. */
export async function ask(method, url, options) {
  const answer = await send(method, url, options);
  return answer.status === 204 ? null : answer.json();
}

/** A reading is answered within this time or not at all: a frozen node keeps its connections, and says nothing. */
const ANSWER_MS = 15000;

export async function get(url, query, { signal, ...options } = {}) {
  const late = AbortSignal.timeout(ANSWER_MS);
  try {
    return await ask("GET", withQuery(url, query), { ...options, signal: signal ? AbortSignal.any([signal, late]) : late });
  } catch (error) {
    if (error.name === "TimeoutError") throw new Refusal({ code: "NO_ANSWER", detail: SILENT }, 0);
    throw error;
  }
}

/** Have the browser keep a file. */
export function keep(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
