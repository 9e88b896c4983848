// What the page shows is read again while it is looked at: when the node says that something changed, and on a timer.

import { useEffect, useReducer, useRef, useState } from "../vendor/preact.js";
import { get } from "./api.js";

const EVERY_MS = 2000;
/** Whether an answer is likely to come later: of the node, or of a proxy before it. */
const isMomentary = ({ status }) => status === 429 || status >= 500;
/** Whether a refusal takes back what was shown before: it is gone, or no longer the caller's to see, and will not come by itself. */
const isLasting = (error) => error.status >= 400 && error.status !== 401 && !isMomentary(error);
/** While the event stream says what changes, there is less to ask for. */
const STREAMED_MS = 4000;

/** What the whole page knows of the connection: "live", or why it is not; who refused us; and when the node was last heard. */
export const connection = { state: "starting", refusal: null, heardAt: Date.now(), isStreamed: false };
const watchers = new Set();

export function tell(state, refusal = null) {
  if (state !== "silent") connection.heardAt = Date.now();
  if (connection.state === state && connection.refusal?.code === refusal?.code) return;
  Object.assign(connection, { state, refusal });
  watchers.forEach((watch) => watch());
}

/** Readers whose last answer is old because they are refused now, each with its refusal. */
const refused = new Map();

/** What a reader was told last: null, its answer. While one is refused, the page says that it is partly old. */
function told(reader, refusal) {
  if (refusal) refused.set(reader, refusal);
  else refused.delete(reader);
  const [first] = refused.values();
  if (first) tell("partly", first);
  else tell("live");
}

export function useConnection() {
  const [, again] = useReducer((turn) => turn + 1, 0);
  useEffect(() => {
    watchers.add(again);
    return () => watchers.delete(again);
  }, []);
  return connection;
}

/** All readers of the page read again now: after an act of its own, and after a login. */
const readers = new Set();
export const readAgain = () => readers.forEach((reader) => reader.now());
/** The node says that something changed: those read again that show what is now. */
export const readOn = () => readers.forEach((reader) => reader.seen());

/**
 * What `read` answers, again and again: { data, error, refresh }; with an `everyMs` of 0 once it has been answered, no
 * more, unless this page acts. `keys`: begin anew when one changes. The last answer
 * stays while the node does not answer, so that a page at night shows what was there.
 */
export function useLive(read, keys, everyMs = EVERY_MS) {
  const [state, setState] = useState({ data: null, error: null });
  const latest = useRef(read);
  const refresh = useRef(() => {});
  latest.current = read;
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let isReading = false;
    let isAskedFor = false;
    let hasData = false;
    let isAnswered = false;
    const once = async () => {
      let next = everyMs;
      try {
        const data = await latest.current(stop.signal);
        if (stop.signal.aborted) return 0;
        hasData = isAnswered = true;
        told(reader, null);
        setState({ data, error: null });
      } catch (error) {
        if (error.name === "AbortError" || stop.signal.aborted) return 0;
        isAnswered = error.status === 429;  // by itself, a long search would use up each new allowance
        if (!error.problem) console.error(error);
        if (error.status === 401) tell("stranger", error);
        else if (error.status === 0) tell("silent", error);
        else told(reader, hasData && isMomentary(error) ? error : null);
        if (error.status === 0 || error.status >= 500) next ||= EVERY_MS;
        setState((before) => ({ data: isLasting(error) ? null : before.data, error }));
      }
      return next;
    };
    /** One reading at a time: where changes come faster than answers, none of these would ever be the latest. */
    const now = async () => {
      clearTimeout(timer);
      isAskedFor = isReading;
      if (isReading) return;
      isReading = true;
      let next;
      do {
        isAskedFor = false;
        next = await once();
      } while (isAskedFor && !stop.signal.aborted);
      isReading = false;
      if (next && !stop.signal.aborted) timer = setTimeout(seen, connection.isStreamed && next === EVERY_MS ? STREAMED_MS : next, true);
    };
    const seen = (isDue) => {
      if (!document.hidden && (isDue === true || everyMs || !isAnswered)) now();
    };
    const reader = { now, seen };
    refresh.current = now;
    setState((before) => ({ ...before, error: null }));
    now();
    readers.add(reader);
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop.abort();
      clearTimeout(timer);
      readers.delete(reader);
      refused.delete(reader);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...keys, everyMs]);
  return { ...state, refresh: () => refresh.current() };
}

/** The answer to a GET, live. A null path asks nothing. */
export const useGet = (path, query = {}, everyMs = EVERY_MS) =>
  useLive((signal) => (path ? get(path, query, { signal }) : null), [path, JSON.stringify(query)], path ? everyMs : 0);

/** Numbers of a moment ago, to make rates of: the last `seconds` of { at, values }. */
export function useRates(values, seconds = 600) {
  const past = useRef([]);
  const key = JSON.stringify(values);
  useEffect(() => {
    if (!values) return;
    past.current.push({ at: Date.now(), values });
    const oldest = Date.now() - seconds * 1000;
    while (past.current[0].at < oldest) past.current.shift();
  }, [key]);
  return past.current;
}
