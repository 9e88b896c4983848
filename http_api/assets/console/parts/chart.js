// A line over the last ten minutes.

import { html, useEffect, useLayoutEffect, useRef } from "../vendor/preact.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 104;
const SPAN_S = 600;
const SHORT_S = 180;
/** Shown at least: a page that was just opened has no line yet. */
const LEAST_S = 20;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The time of a tick; with seconds while the line is short. */
const clock = (at, length) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: length < SHORT_S ? "2-digit" : undefined });

function optionsOf(width, lines, format, least, isPast) {
  // Colours are functions, which each drawing asks anew: a person, or the system at dusk, may change them meanwhile.
  const axis = { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { points: { size: 6 }, y: false, drag: { x: false } },
    padding: [6, 18, 0, 0],
    scales: { x: { time: !isPast }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, least)] } },
    axes: [
      { ...axis, size: 24, gap: 8, space: 80, values: (plot, times) => times.map((at) => isPast ? `${at} s` : clock(at, plot.scales.x.max - plot.scales.x.min)) },
      { ...axis, size: 52, gap: 4, space: 34, values: (_, values) => values.map((value) => format(value)) },
    ],
    series: [{}, ...lines.map((line) => ({ stroke: () => color(line.color), width: 1.5, fill: line.fill && (() => color(line.fill)), points: { show: false }, spanGaps: true }))],
  };
}

/**
 * `lines`: [{ name, color, fill }], the names those of the points. `words`: what a reader who sees nothing is told;
 * `least`: what the axis reaches at least. `isPast`: all of the points, whose times are seconds since a beginning.
 */
export function Chart({ points, lines, format, words, least = 1, isPast = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  useLayoutEffect(() => {
    plot.current = new uPlot(optionsOf(box.current.clientWidth, lines, format, least, isPast), [[], ...lines.map(() => [])], box.current);
    const sized = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    sized.observe(box.current);
    const draw = () => plot.current.redraw(false);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      sized.disconnect();
      themed.disconnect();
      dark.removeEventListener("change", draw);
      plot.current.destroy();
    };
  }, []);
  useEffect(() => {
    const now = Date.now() / 1000;
    if (isPast) {
      plot.current.setData([points.map((each) => each.at), ...lines.map((line) => points.map((each) => each[line.name]))]);
      return;
    }
    const first = Math.max(points[0]?.at ?? now, now - SPAN_S);
    plot.current.setData([points.map((each) => each.at), ...lines.map((line) => points.map((each) => each[line.name]))], false);
    plot.current.batch(() => {
      plot.current.setScale("x", { min: Math.min(first, now - LEAST_S), max: now });
    });
  });
  return html`<div class="chart" ref=${box} role="img" aria-label=${words}></div>`;
}
